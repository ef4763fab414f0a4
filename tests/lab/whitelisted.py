"""A lab for the whitelist: servers for every hello, and clients that visit them."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from egressd_lab.lab import Lab
from egressd_lab.netns import exec_argv
from tests.support.programs import hellos
from tests.support.programs.hellos import Visit

_PROGRAM = str(Path(hellos.__file__))
_ports = itertools.count(20_000)  # below the kernel's range of ports


@contextmanager
def served(lab: Lab) -> Iterator[None]:
    """Run TLS and QUIC servers at addresses of their own, beside the lab's."""
    for address in (hellos.ADDRESS, hellos.SECOND):
        lab.internet.run("ip", "address", "add", f"{address}/32", "dev", "lo")
    certificate, key = lab.authority.certificate("hellos", ["www.test"])
    argv = [sys.executable, _PROGRAM, "serve", str(certificate), str(key)]
    with subprocess.Popen(
        exec_argv(lab.internet.namespace, argv), stdout=subprocess.PIPE
    ) as program:
        assert program.stdout is not None
        assert program.stdout.readline() == b"ready\n"
        try:
            yield
        finally:
            program.kill()


def visit(lab: Lab, client: int, visits: Sequence[Visit]) -> list[str]:
    """Return the address that each visit of a client was seen with, or its error."""
    # QUIC from a port of an earlier visit to that server continues the earlier one's session, and
    # uses its egress. The kernel chooses ports at random, so the same one is sometimes repeated.
    visits = [
        replace(one, local_port=next(_ports)) if one.kind == "quic" and not one.local_port else one
        for one in visits
    ]
    host = lab.client(client).host
    done = host.run(
        sys.executable,
        _PROGRAM,
        "visit",
        stdin=msgspec.json.encode(visits).decode(),
        timeout=120.0,
    )
    seen: list[str] = json.loads(done.stdout)
    return seen


def save(lab: Lab, domains: str = "", ips: str = "", node: str = "DIRECT") -> str:
    """Put the whitelist, and return the ``msg``."""
    message: str = lab.api.put("/whitelist", {"domains": domains, "ips": ips, "node": node})["msg"]
    return message


def set_device(lab: Lab, **settings: Any) -> str:
    """Change settings of the device, and return the ``msg``."""
    known = lab.api.ask("GET", "/ops/settings").body
    answer = lab.api.ask("PUT", "/ops/settings", known | settings)
    assert answer.status == 200, answer.body
    message: str = answer.body["msg"]
    return message
