"""A compromised API cannot make a running netd request anything from services of this machine."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator

import pytest

from egressd.model import outbounds
from egressd.model.delays import Delay
from egressd.model.instances import Hop, KernelPath, NodePath
from egressd.model.messages import Delays, MeasureDelay, Probe, Refused, Reply, Request
from egressd.netd.system import framing
from egressd.planner.registry import (
    MARK_ANSWER,
    MARK_ASKED_LOCALLY,
    MARK_DIRECT,
    MARK_ENGINE,
    MARK_LISTED,
    MARK_LOCAL,
    egress_mark,
)
from egressd_lab.client import Client
from egressd_lab.lab import Lab
from egressd_lab.process import Program
from egressd_lab.spec import LAN_ADDRESS, RESOLVERS, LabSpec, Place
from tests.support.device import SERVER, eventually, send

pytestmark = pytest.mark.lab

PORT = 1082
NAME = "loopback.test"
HERE = ("127.0.0.1", "127.0.0.2", "0.0.0.0", "[::1]", "[::ffff:127.0.0.1]", NAME, str(LAN_ADDRESS))
RESOLVER = RESOLVERS["overseas"]


@pytest.fixture(scope="module")
def lab(namespaces: None) -> Iterator[Lab]:
    with Lab(LabSpec(nodes=(), zone={NAME: ("127.0.0.1",)})) as lab:
        lab.start_egressd()
        send(lab, 1, "Interface:wan2")
        yield lab


class Called:
    """An HTTP server on all of the router's addresses, with a count of its requests."""

    def __init__(self, lab: Lab) -> None:
        self._log = lab.folder / "called.log"
        argv = [sys.executable, "-u", "-m", "http.server", str(PORT)]
        self.program = Program(lab.router.namespace, argv, self._log, {})

    @property
    def number(self) -> int:
        return self._log.read_text().count(" - - [")


@pytest.fixture(scope="module")
def called(lab: Lab) -> Iterator[Called]:
    server = Called(lab)
    server.program.start()
    try:
        eventually(lambda: f":{PORT}" in lab.router.run("ss", "-Hltn").stdout)
        yield server
    finally:
        server.program.stop(10)


async def measured(lab: Lab, path: NodePath | KernelPath, url: str) -> Delay | Refused:
    """Return netd's answer to a request to measure the delay of the page."""
    socket = lab.device.config.parent / "run" / "netd.sock"
    reader, writer = await asyncio.open_unix_connection(socket)
    probe = Probe(name="a", path=path, read_max=64)
    asked = MeasureDelay(probes=(probe,), url=url, timeout_ms=1500)
    try:
        writer.write(framing.pack(Request(number=1, body=asked)))
        reply = await framing.read(reader, framing.decoder_of(Reply))
    finally:
        writer.close()
    if isinstance(reply.body, Refused):
        return reply.body
    assert isinstance(reply.body, Delays)
    return reply.body.results["a"]


def routed(mark: int) -> KernelPath:
    return KernelPath(mark=mark, resolver=RESOLVER)


def through(server: str, mark: int) -> NodePath:
    """Return a node path that sends an HTTP CONNECT to that server."""
    proxy = outbounds.HttpProxy(server=server, server_port=PORT, username="u", password="p")
    return NodePath(hops=(Hop(node=1, outbound=proxy),), mark=mark, resolver=RESOLVER)


async def test_control_a_measurement_of_a_server_outside_succeeds(lab: Lab) -> None:
    for mark in (MARK_DIRECT, egress_mark(1)):
        found = await measured(lab, routed(mark), f"http://{SERVER}/")
        assert isinstance(found, Delay)
        assert found.page, found


def test_control_the_local_service_answers_local_requests(lab: Lab, called: Called) -> None:
    own = Client(lab.router, Place(name="router", role="router", address="127.0.0.1"))
    before = called.number
    assert own.http(f"http://127.0.0.1:{PORT}/").status == 200
    assert called.number == before + 1


@pytest.mark.parametrize("mark", [MARK_DIRECT, egress_mark(1)], ids=hex)
@pytest.mark.parametrize("host", HERE)
async def test_no_egress_reaches_services_of_this_machine(
    lab: Lab, called: Called, mark: int, host: str
) -> None:
    before = called.number
    found = await measured(lab, routed(mark), f"http://{host}:{PORT}/")
    assert isinstance(found, Delay), found
    assert (found.delay, found.page) == (-1, b"")
    found = await measured(lab, through(host.strip("[]"), mark), f"http://{SERVER}/")
    assert isinstance(found, Delay), found
    assert found.delay == -1
    assert called.number == before


@pytest.mark.parametrize(
    "mark",
    [0, 1, 51_820, MARK_ENGINE | 1, MARK_LISTED, MARK_LOCAL, MARK_ANSWER, MARK_ASKED_LOCALLY],
    ids=hex,
)
async def test_measurements_with_other_marks_are_refused(
    lab: Lab, called: Called, mark: int
) -> None:
    before = called.number
    for path in (routed(mark), through("127.0.0.1", mark)):
        found = await measured(lab, path, f"http://127.0.0.1:{PORT}/")
        assert isinstance(found, Refused), found
        assert "probes[0].path.mark" in found.cause
    assert called.number == before
