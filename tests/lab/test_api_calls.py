"""A flood of connections to the API is metered and reported, and other clients do not notice it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import pytest

from egressd.planner.api_guard import CALLS_PER_S
from egressd_lab.device import API_PORT
from egressd_lab.host import Host
from egressd_lab.lab import Lab
from egressd_lab.netns import exec_argv
from egressd_lab.spec import LAN6, LAN_ADDRESS
from tests.support.device import eventually

pytestmark = pytest.mark.lab

ROUTER6 = f"{LAN6}1"

NOBODY = 65534
"""The user ID of ``nobody``, a user without rights."""

FLOOD = """
import os, socket, sys
address, port = sys.argv[1], int(sys.argv[2])
os.setuid(int(sys.argv[3]))
family = socket.AF_INET6 if ":" in address else socket.AF_INET
print("begun", flush=True)
kept = []
while True:
    sock = socket.socket(family)
    sock.setblocking(False)
    sock.connect_ex((address, port))
    kept.append(sock)
    if len(kept) > 900:
        kept.pop(0).close()
"""
"""Opens one connection after another, as fast as it can."""


@pytest.fixture(scope="module")
def lab(namespaces: None) -> Iterator[Lab]:
    with Lab() as lab:
        lab.start_egressd({"api": {"listen": f"[::]:{API_PORT}"}})
        yield lab


@contextmanager
def flooding(host: Host, address: str, user: int = 0) -> Iterator[None]:
    program = (sys.executable, "-c", FLOOD, address, str(API_PORT), str(user))
    argv = exec_argv(host.namespace, program)
    process = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == "begun\n"
        yield
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def reached(lab: Lab) -> set[str]:
    """Return the sources that are reported to have reached the bound."""
    overview = lab.api.ask("GET", "/ops/overview", timeout=5).body
    told = {each["source"] for each in overview["reached"] if each["kind"] == "api"}
    sentences = [p for p in overview["problems"] if "new connections a second to the API" in p]
    assert bool(sentences) == bool(told)
    return told


def is_reported(lab: Lab, source: str) -> bool:
    """True if that source is reported to have reached the bound."""
    return source in reached(lab)


def answers(host: Host, address: str) -> bool:
    """True if another host gets an answer."""
    with host.socket(address, API_PORT, 5) as sock:
        sock.settimeout(5)
        sock.sendall(b"GET /ops/health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        return sock.recv(100).startswith(b"HTTP/1.1 ")


def test_floods_are_reported_and_others_are_served(lab: Lab) -> None:
    """A client floods by IPv4, a client by IPv6, and a local user, one after another."""
    client, client6, other = lab.client(1), lab.client(3), lab.client(2)
    floods = (
        (client.address, client.host, str(LAN_ADDRESS), 0),
        (client6.address6, client6.host, ROUTER6, 0),
        ("127.0.0.1", lab.router, "127.0.0.1", NOBODY),
    )
    for source, host, address, user in floods:
        with flooding(host, address, user):
            eventually(partial(is_reported, lab, source), 15)
            for _ in range(5):
                assert answers(other.host, str(LAN_ADDRESS))
        assert reached(lab) <= {source for source, *_ in floods}
    eventually(lambda: reached(lab) == set(), 40)
    for _, host, address, _ in floods:
        assert answers(host, address)


def test_a_client_with_frequent_calls_reaches_no_bound(lab: Lab) -> None:
    for _ in range(3 * CALLS_PER_S):
        assert answers(lab.client(3).host, str(LAN_ADDRESS))
    assert reached(lab) == set()
