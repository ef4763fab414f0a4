"""A real dnsmasq in a namespace of the lab: the router's own resolver, or a server in the LAN."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager

from egressd_lab.host import Host
from egressd_lab.lab import Lab
from egressd_lab.process import Program
from egressd_lab.spec import RESOLVERS
from tests.support.device import eventually

UPSTREAM = RESOLVERS["quad9"]
"""The resolver that it asks for unknown names."""

_RUNS = itertools.count()


@contextmanager
def dnsmasq(lab: Lab, host: Host, *options: str) -> Iterator[Program]:
    """Run it until the block ends. Its log has the name and the sender (``from`` and the address)
    of each query.
    """
    argv = ["dnsmasq", "--keep-in-foreground", "--conf-file=/dev/null", "--no-resolv", "--no-hosts"]
    argv += [f"--server={UPSTREAM}", "--user=root", "--pid-file", "--cache-size=0"]
    argv += ["--log-queries", "--log-facility=-", *options]
    program = Program(host.namespace, argv, lab.folder / f"dnsmasq-{next(_RUNS)}.log", {})
    program.start()
    try:
        eventually(lambda: "started" in program.log.read_text())
        yield program
    finally:
        program.stop(10)


def asked_by(program: Program, name: str) -> set[str]:
    """Return the addresses that asked it for a name."""
    lines = program.log.read_text().splitlines()
    return {
        line.rpartition(" from ")[2]
        for line in lines
        if "query[" in line and f"] {name} from " in line
    }
