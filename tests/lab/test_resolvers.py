"""The device's own resolver, where it stands: on the router, in the LAN. Found by an audit."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from egressd.lab.lab import Lab
from egressd.lab.process import Program
from egressd.lab.spec import LAN_ADDRESS, RESOLVERS, WHOAMI, LabSpec
from tests.lab.device_state import add_nodes, eventually, send

pytestmark = pytest.mark.lab

TARGETS = {1: "DIRECT", 2: "Interface:wan2", 3: "ss"}
IN_LAN = "10.77.0.250"
"""The spoofer's own address: a LAN host without a rule."""
_PROGRAM = """
import asyncio, sys
from egressd.lab.internet.register import Register
from egressd.lab.internet.resolver import Resolver, Zone

async def main():
    await Resolver(Register(), Zone({}), sys.argv[1]).listen()
    await asyncio.Event().wait()

asyncio.run(main())
"""


@pytest.fixture
def lab(namespaces: None) -> Iterator[Lab]:
    with Lab(LabSpec(nodes=("ss",), clients=3)) as lab:
        yield lab


def start(lab: Lab, *device: str) -> None:
    lab.start_egressd({"dns": {"device": device}})
    add_nodes(lab)
    for client, target in TARGETS.items():
        send(lab, client, target)


def asker(lab: Lab, client: int) -> str:
    """The address from which the resolver is asked that answers this client."""
    reply = lab.client(client).dns(f"a-name.{WHOAMI}", RESOLVERS["google"], timeout=1)
    return reply.error or reply.addresses[0]


def test_a_resolver_on_the_router_is_not_one_for_clients(lab: Lab) -> None:
    mark = lab.internet.mark()
    lab.topology.write_etc("router", "resolv.conf", f"nameserver {LAN_ADDRESS}\n")
    start(lab)
    exits = [lab.wan(1).address, lab.wan(2).address, lab.nodes["ss"].address]
    assert [asker(lab, client) for client in TARGETS] == exits
    asked = [seen.server for seen in lab.internet.seen(since=mark, service="dns", text=WHOAMI)]
    assert asked == [RESOLVERS["domestic"]] * 2 + [RESOLVERS["overseas"]]


def test_a_resolver_in_the_lan_is_asked_for_direct_clients_only(lab: Lab) -> None:
    argv = [sys.executable, "-c", _PROGRAM, IN_LAN]
    resolver = Program(lab.spoofer.host.namespace, argv, lab.folder / "resolver.log")
    resolver.start()
    try:
        start(lab, IN_LAN)
        eventually(lambda: asker(lab, 1) == str(LAN_ADDRESS))
        mark = lab.internet.mark()
        assert asker(lab, 2) == lab.wan(2).address
        (asked,) = lab.internet.seen(since=mark, service="dns", text=WHOAMI)
        assert asked.server == RESOLVERS["overseas"]
        assert asker(lab, 3) == lab.nodes["ss"].address
    finally:
        resolver.stop()
