"""Nodes may not lead to this device, and those of a list may not lead to its neighbours."""

from __future__ import annotations

import json
from ipaddress import IPv4Address, IPv6Address, IPv6Network
from typing import TYPE_CHECKING

import msgspec
import pytest

from egressd.model.desired import Edit
from egressd.model.drafts import NodeBatch
from egressd.model.errors import Invalid
from egressd.model.plan import Plan, difference
from egressd.netd.reconciler import validation
from egressd.planner.compile import compile_plan
from egressd.service.servers import ServerSurroundings
from tests.support.use_cases import RESOLVERS

if TYPE_CHECKING:
    from tests.support.drafts import Make
    from tests.support.use_cases import Bench


HERE = "config_json.server must not be this device itself"
OWN = [
    "127.0.0.1",
    "127.9.9.9",
    "0.0.0.0",
    "::1",
    "::",
    "::ffff:127.0.0.1",
    "64:ff9b::7f00:1",
    "localhost",
    "a.localhost",
    "10.0.0.1",
    "203.0.113.2",
    "::ffff:10.0.0.1",
    "2001:db8::2",
]
INNER = {
    "10.0.0.7": "a private address",
    "192.168.1.1": "a private address",
    "172.16.0.1": "a private address",
    "100.64.0.1": "a private address",
    "fd00::1": "a private address",
    "169.254.169.254": "a link-local address",
    "fe80::1": "a link-local address",
    "224.0.0.1": "a multicast address",
    "ff02::1": "a multicast address",
    "255.255.255.255": "a reserved address",
    "0.1.2.3": "a reserved address",
    "::ffff:192.168.1.1": "a private address",
    "2002:c0a8:101::1": "a private address",
    "64:ff9b::a00:7": "a private address",
    "198.18.7.9": "in a LAN",
    "2001:db8:7::9": "in a LAN",
    "router": "a name of a private network",
    "nas.local": "a name of a private network",
    "nas.home.arpa": "a name of a private network",
    "nas.internal": "a name of a private network",
    "nas.home.test": "a name of a private network",
}
OUTER = ["203.0.113.7", "198.18.0.9", "8.8.8.8", "2001:db8::7", "vpn.example.com", "local.example"]


@pytest.fixture
def placed(bench: Bench) -> Bench:
    """A device that also has IPv6 addresses."""
    around = bench.around
    bench.around = ServerSurroundings(
        own=around.own | {IPv6Address("2001:db8::2")},
        networks=(*around.networks, IPv6Network("2001:db8:7::/64")),
        domains=around.domains,
    )
    return bench


def row(server: str, name: str = "n") -> str:
    return f"{f'[{server}]' if ':' in server else server},1080,u,p,{name}"


async def import_rows(bench: Bench, text: str, **options: bool) -> tuple[int, tuple[str, ...]]:
    outcome = await bench.nodes.import_rows(
        "socks5", text, replace=False, group="", auto_name=False, start_index=1, **options
    )
    return outcome.imported, outcome.errors


@pytest.mark.parametrize("server", OWN)
async def test_a_server_on_this_device_is_refused(placed: Bench, make: Make, server: str) -> None:
    with pytest.raises(Invalid, match=HERE):
        await placed.nodes.create(make.node(server=server))
    node = await placed.add_node()
    with pytest.raises(Invalid, match=HERE):
        await placed.nodes.replace(node.id, make.node(server=server))
    for private in (False, True):
        imported = await import_rows(placed, row(server), private_servers=private)
        assert imported == (0, ("line 1: server must not be this device itself",))


async def test_behind_a_relay_a_local_address_is_accepted(placed: Bench, make: Make) -> None:
    await placed.add_node("relay")
    for server in ("127.0.0.1", "10.0.0.1"):
        node = await placed.add_node(server, server=server, **{"dialer-proxy": "relay"})
        for batch in (
            NodeBatch(ids=(node.id,), dialer_proxy=""),
            NodeBatch(ids=(node.id,), interface_name="wan1"),
        ):
            with pytest.raises(Invalid, match=f"{server}: {HERE}"):
                await placed.nodes.update_many(batch)
        await placed.nodes.update_many(NodeBatch(ids=(node.id,), group="g"))


@pytest.mark.parametrize(("server", "what"), INNER.items())
async def test_an_import_takes_private_servers_only_on_request(
    placed: Bench, server: str, what: str
) -> None:
    problem = f"server must be on the internet unless the import takes private ones: it is {what}"
    for preview in (True, False):
        assert await import_rows(placed, row(server), preview=preview) == (
            0,
            (f"line 1: {problem}",),
        )
    assert await import_rows(placed, row(server), private_servers=True) == (1, ())


@pytest.mark.parametrize("server", OUTER)
async def test_internet_servers_are_accepted(placed: Bench, server: str) -> None:
    assert await import_rows(placed, row(server)) == (1, ())


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("others", "{name: a, type: trojan, server: 192.168.1.1, port: 443, password: p}"),
        (
            "others",
            "proxies:\n- name: a\n  type: ss\n  server: 192.168.1.1\n  port: 1\n"
            "  cipher: aes-128-gcm\n  password: p",
        ),
        ("ss", "192.168.1.1,443,aes-128-gcm,p,a"),
        ("vlessvmess", "vless|b831381d-6324-4d53-ad4f-8cda48b30811|192.168.1.1|443"),
        ("socks5", "hysteria2://p@192.168.1.1:443?sni=a.test#a"),
        ("socks5", "trojan://p@192.168.1.1:443#a"),
    ],
)
async def test_private_servers_are_refused_in_any_spelling(
    bench: Bench, kind: str, text: str
) -> None:
    outcome = await bench.nodes.import_rows(
        kind, text, replace=False, group="", auto_name=False, start_index=1
    )
    assert outcome.imported == 0
    assert "it is a private address" in outcome.errors[0]


async def test_a_node_of_the_operator_may_have_a_private_server(bench: Bench) -> None:
    near = await bench.add_node("near", server="10.0.0.7")
    await bench.add_node("far", server="203.0.113.7")
    await bench.add_node("named", server="nas.home.test")
    await bench.add_node("beyond", server="192.168.7.7", **{"dialer-proxy": "far"})
    assert bench.netd.plan.neighbours == {f"node:{near.id}": "10.0.0.7"}
    await bench.nodes.delete(near.id)
    assert bench.netd.plan.neighbours == {}
    await bench.agree()


@pytest.mark.parametrize(
    "server", ["::ffff:10.0.0.7", "::FFFF:a00:7", "0:0:0:0:0:ffff:10.0.0.7", "\\u0031\\u0030.0.0.7"]
)
@pytest.mark.parametrize("password", ["x", "10.x"])
async def test_a_private_server_is_recognised_in_any_spelling(
    bench: Bench, make: Make, server: str, password: str
) -> None:
    draft = make.node(password=password, username="u")
    text = draft.config_json.replace("198.51.100.7", server)
    near = (await bench.nodes.create(msgspec.structs.replace(draft, config_json=text))).value
    assert bench.netd.plan.neighbours == {f"node:{near.id}": "10.0.0.7"}
    assert [*validation.problems(difference(Plan(), bench.netd.plan))] == []
    await bench.agree()


async def test_no_delay_is_measured_to_an_address_of_the_device(bench: Bench, make: Make) -> None:
    await bench.add_node("a", server="203.0.113.9")
    await bench.add_node("b", **{"dialer-proxy": "a"})
    assert (await bench.nodes.delay("a", None, 1000)).delay == 42
    bench.around = ServerSurroundings(own=frozenset({IPv4Address("203.0.113.9")}))
    for name in ("a", "b"):
        measured = await bench.nodes.delay(name, None, 1000)
        assert (measured.delay, measured.error) == (-1, f"a: {HERE}")
    assert await bench.nodes.delay_all(None, 1000) == {"a": -1, "b": -1}


async def test_a_stored_node_with_a_local_server_blocks(bench: Bench, make: Make) -> None:
    node = await bench.add_node("a", server="203.0.113.9")
    await bench.rules.create(make.rule("10.0.0.5", "a"))
    config = json.dumps({"server": "127.0.0.1", "port": 1080})
    edit = Edit("nodes", node.id, msgspec.structs.replace(node, config_json=config))
    state = bench.state.with_edits([edit], bench.state.revision)
    assert f"node:{node.id}" in bench.netd.plan.instances
    assert f"node:{node.id}" not in compile_plan(state, RESOLVERS).instances
