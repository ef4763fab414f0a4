"""Roles of interfaces, found or configured."""

from ipaddress import IPv4Address, IPv4Interface, IPv4Network, IPv6Address, IPv6Network

import msgspec
import pytest

from egressd.model.device import InterfaceRoles
from egressd.model.facts import Facts, Interface, Route, Route6
from egressd.planner.egress_problems import missing_roles
from egressd.planner.registry import egress_mark, inbound_number
from egressd.planner.topology import (
    Topology,
    discover,
    inbound,
    recalled,
    uplink,
    uplinks6,
)

ANYWHERE = IPv4Network("0.0.0.0/0")


def interface(name: str, *addresses: str, index: int = 2, **more: object) -> Interface:
    return Interface(
        name=name,
        index=index,
        is_up=bool(more.pop("is_up", True)),
        addresses=tuple(map(IPv4Interface, addresses)),
        **more,  # type: ignore[arg-type]
    )


def facts(*interfaces: Interface, routes: tuple[Route, ...] = ()) -> Facts:
    connected = tuple(
        Route(destination=a.network, interface=i.name) for i in interfaces for a in i.addresses
    )
    return Facts(interfaces={i.name: i for i in interfaces}, routes=connected + routes)


def default(name: str, gateway: str, metric: int = 0) -> Route:
    return Route(destination=ANYWHERE, interface=name, gateway=IPv4Address(gateway), metric=metric)


LOOPBACK = interface("lo", "127.0.0.1/8", index=1, is_loopback=True, mtu=65_536)
LAN = interface("lan0", "10.77.0.1/24")
WAN1 = interface("wan1", "198.51.100.2/30")
WAN2 = interface("wan2", "192.168.1.2/24")
TWO_WANS = facts(
    LOOPBACK,
    LAN,
    WAN1,
    WAN2,
    routes=(default("wan2", "192.168.1.1", 200), default("wan1", "198.51.100.1", 100)),
)


def test_ipv6_leaves_by_an_interfaces_own_routes() -> None:
    def route(to: str, name: str, via: str = "", metric: int = 256) -> Route6:
        gateway = IPv6Address(via) if via else None
        return Route6(destination=IPv6Network(to), interface=name, gateway=gateway, metric=metric)

    preferred, near = route("::/0", "wan1", "fe80::1", 100), route("2001:db8::/64", "wan1")
    routes = (
        route("::/0", "wan1", "fe80::2", 200),
        preferred,
        near,
        route("2001:db8:1::/48", "wan1", "fe80::3"),
        route("::/0", "wan2", "fe80::1"),
        route("::/0", "l2tp_1"),
    )
    idle = interface("wan2", is_up=False)
    line = interface("l2tp_1", is_point_to_point=True)
    known = msgspec.structs.replace(facts(LAN, WAN1, idle, line), routes6=routes)
    assert uplinks6("wan1", known) == (near, preferred)
    for name in ("lan0", "wan2", "l2tp_1", "none"):
        assert uplinks6(name, known) == ()


def test_wans_have_default_routes_and_lans_private_addresses() -> None:
    found = discover(TWO_WANS, InterfaceRoles())
    assert found.lans == ("lan0",)
    assert found.wans == ("wan1", "wan2")
    assert found.lan_networks == (("lan0", IPv4Network("10.77.0.0/24")),)
    assert found.direct_exits == ("wan1", "wan2")


def test_a_lan_stacked_on_another_is_reported() -> None:
    def roles_of(*interfaces: Interface) -> tuple[tuple[str, str], ...]:
        return discover(facts(LOOPBACK, *interfaces, WAN1), InterfaceRoles()).stacked

    eth = interface("eth1", "192.168.1.1/24", index=5)
    vlan = interface("eth1.7", "10.7.0.1/24", index=6, parent=5)
    inner = interface("eth1.7.8", "10.8.0.1/24", index=7, parent=6)
    assert roles_of(eth, vlan) == (("eth1", "eth1.7"),)
    assert roles_of(eth, vlan, inner) == (
        ("eth1", "eth1.7"),
        ("eth1.7", "eth1.7.8"),
        ("eth1", "eth1.7.8"),
    )
    bridge = interface("br7", "10.7.0.1/24", index=8)
    port = interface("eth1.7", index=6, parent=5, master=8)
    assert roles_of(eth, port, bridge) == (("eth1", "br7"),)
    # The ends of a veth pair are each other's parents.
    ends = interface("a", "10.1.0.1/24", index=3, parent=4), interface("b", index=4, parent=3)
    assert roles_of(*ends) == ()


def test_routers_behind_lans_and_their_parents_are_ignored_but_the_named() -> None:
    trunk = interface("eth0", index=3)
    vlan = interface("eth0.7", "10.7.0.1/24", index=4, parent=3)
    docker = interface("docker0", "172.17.0.1/16", index=5)
    seen = discover(facts(LOOPBACK, trunk, vlan, docker, WAN1), InterfaceRoles(wan=("wan1",)))
    assert set(seen.unheard) == {"eth0", "eth0.7", "docker0"}
    router = IPv6Address("fe80::1")
    roles = InterfaceRoles(
        lan=("eth0.7",), wan=("eth0.7",), gateways6={"eth0.7": router, "wan1": router}
    )
    both = discover(facts(LOOPBACK, trunk, vlan), roles)
    assert both.routers6 == (("eth0.7", router),)
    # Nor is the trunk of a LAN, if it is a WAN itself.
    roles = InterfaceRoles(lan=("eth0.7",), wan=("eth0",))
    assert discover(facts(LOOPBACK, trunk, vlan), roles).unheard == ("eth0.7",)


def test_an_address_of_two_interfaces_is_known_as_a_twin() -> None:
    tunnels = [interface(name, "10.2.0.2/32", index=n) for n, name in enumerate(("wg0", "wg1"), 8)]
    found = discover(facts(LAN, WAN1, *tunnels), InterfaceRoles(wan=("wan1", "wg0", "wg1")))
    assert found.twin_addresses == (IPv4Address("10.2.0.2"),)
    assert discover(TWO_WANS, InterfaceRoles()).twin_addresses == ()


def test_a_configured_source_counts_while_its_interface_has_it() -> None:
    shared = IPv4Address("203.0.113.9")
    roles = InterfaceRoles(sources={"wan1": shared})

    def found(*interfaces: Interface) -> Topology:
        return discover(facts(LOOPBACK, LAN, *interfaces), roles)

    other = interface("wan2", "203.0.113.9/32", index=9)
    holder = msgspec.structs.replace(
        WAN1, addresses=(*WAN1.addresses, IPv4Interface("203.0.113.9/32"))
    )
    for without in (found(), found(WAN1), found(WAN1, other)):
        assert (without.fixed_sources, without.sources) == ((("wan1", shared),), ())
        (problem,) = (p for p in missing_roles(without, roles) if p.code == "source-missing")
        assert problem.values == {"name": "wan1", "address": "203.0.113.9"}
    assert found(holder).sources == (("wan1", shared),)
    assert "source-missing" not in {p.code for p in missing_roles(found(holder), roles)}


def test_a_tunnel_with_only_an_ipv6_default_route_is_a_direct_exit() -> None:
    def way(name: str) -> tuple[Route6, ...]:
        return (Route6(destination=IPv6Network("::/0"), interface=name),)

    tunnel = interface("he0", index=7)
    seen = facts(LOOPBACK, LAN, WAN1, tunnel, routes=(default("wan1", "198.51.100.1"),))
    exits = [
        discover(msgspec.structs.replace(seen, routes6=way(name)), InterfaceRoles()).direct_exits
        for name in ("he0", "lan0")
    ]
    assert exits == [("wan1", "he0"), ("wan1",)]


def test_an_egress_with_a_smaller_mtu_than_a_lan_is_narrow() -> None:
    dsl = interface("ppp0", "203.0.113.7/32", is_point_to_point=True, mtu=1492)
    routes = (Route(destination=ANYWHERE, interface="ppp0"), *TWO_WANS.routes)
    assert discover(
        facts(LOOPBACK, LAN, WAN1, WAN2, dsl, routes=routes), InterfaceRoles()
    ).narrow == ("ppp0",)
    jumbo = interface("lan0", "10.77.0.1/24", mtu=9000)
    found = discover(facts(LOOPBACK, jumbo, WAN1, WAN2, dsl, routes=routes), InterfaceRoles())
    assert found.narrow == ("wan1", "wan2", "ppp0")
    one_arm = interface("eth0", "192.168.1.2/24", mtu=1400)
    alone = facts(LOOPBACK, one_arm, routes=(default("eth0", "192.168.1.1"),))
    assert discover(alone, InterfaceRoles()).narrow == ()


def test_configured_roles_hold_before_the_interfaces_exist() -> None:
    found = discover(facts(LOOPBACK), InterfaceRoles(lan=("lan0",), wan=("wan1",)))
    assert found.lans == ("lan0",)
    assert found.wans == ("wan1",)
    assert found.lan_networks == ()


def test_interfaces_that_may_be_a_missing_lan_are_not_known() -> None:
    renamed, docker = interface("eth7", "10.77.0.1/24"), interface("docker0", "172.17.0.1/16")
    machine = facts(LOOPBACK, renamed, docker, WAN1, routes=TWO_WANS.routes)
    found = discover(machine, InterfaceRoles(lan=("lan0",)))
    assert (found.missing, found.known) == (("lan0",), ("lo", "docker0", "wan1"))
    found = discover(machine, InterfaceRoles(lan=("eth7",)))
    assert (found.missing, found.known) == ((), ("lo", "eth7", "docker0", "wan1"))
    no_address = facts(LOOPBACK, interface("lan0"), renamed, routes=TWO_WANS.routes)
    assert discover(no_address, InterfaceRoles(lan=("lan0",))).known == ("lo",)


def test_a_single_private_interface_with_the_default_route_is_one_arm() -> None:
    only = interface("eth0", "192.168.1.2/24")
    found = discover(
        facts(LOOPBACK, only, routes=(default("eth0", "192.168.1.1"),)), InterfaceRoles()
    )
    assert found.lans == found.wans == ("eth0",)
    assert found.direct_exits == ("eth0",)


def test_a_found_lan_stays_a_lan_without_its_address_or_interface() -> None:
    """Past fault: a found LAN that lost its address lost its role, and its clients were forwarded
    without rules.
    """
    before = discover(facts(LOOPBACK, LAN, PRIVATE_WAN, routes=(OUT,)), InterfaceRoles())
    assert (before.lans, before.wans) == (("lan0",), ("wan0",))
    for present in ((interface("lan0"), PRIVATE_WAN), (PRIVATE_WAN,)):
        now = discover(facts(LOOPBACK, *present, routes=(OUT,)), InterfaceRoles(), before)
        assert (now.lans, now.wans) == (("lan0",), ("wan0",))
        assert now.lan_networks == before.lan_networks
        assert discover(facts(LOOPBACK, *present, routes=(OUT,)), InterfaceRoles(), now).lans == (
            "lan0",
        )
    elsewhere = interface("lan0", "10.99.0.1/24")
    now = discover(facts(LOOPBACK, elsewhere, PRIVATE_WAN, routes=(OUT,)), InterfaceRoles(), before)
    assert now.lan_networks == (("lan0", IPv4Network("10.99.0.0/24")),)


def test_a_found_wan_that_loses_its_default_route_is_no_lan() -> None:
    found = discover(facts(LOOPBACK, LAN, PRIVATE_WAN, routes=(OUT,)), InterfaceRoles())
    for _ in range(3):
        found = discover(facts(LOOPBACK, LAN, PRIVATE_WAN), InterfaceRoles(), found)
        assert (found.lans, found.wans) == (("lan0",), ())
    found = discover(facts(LOOPBACK, LAN, PRIVATE_WAN, routes=(OUT,)), InterfaceRoles(), found)
    assert (found.lans, found.wans) == (("lan0",), ("wan0",))


def test_an_interface_whose_default_route_comes_late_is_a_wan() -> None:
    found = discover(facts(LOOPBACK, LAN, PRIVATE_WAN), InterfaceRoles())
    assert found.lans == ("lan0", "wan0")
    found = discover(facts(LOOPBACK, LAN, PRIVATE_WAN, routes=(OUT,)), InterfaceRoles(), found)
    assert (found.lans, found.wans) == (("lan0",), ("wan0",))


def test_networks_behind_the_gateway_of_a_one_arm_device_are_no_lan() -> None:
    """Past fault: on a one-arm device each network with a route through the arm counted as LAN, and
    all clients could reach it.
    """
    only = interface("eth0", "192.168.1.2/24")
    elsewhere = Route(
        destination=IPv4Network("198.51.100.0/24"),
        interface="eth0",
        gateway=IPv4Address("192.168.1.1"),
    )
    routes = (default("eth0", "192.168.1.1"), elsewhere)
    for roles in (InterfaceRoles(), InterfaceRoles(lan=("eth0",), wan=("eth0",))):
        found = discover(facts(LOOPBACK, only, routes=routes), roles)
        assert found.lan_networks == (("eth0", IPv4Network("192.168.1.0/24")),)


def test_a_wan_keeps_its_number_when_another_goes_and_when_netd_restarts() -> None:
    before = discover(TWO_WANS, InterfaceRoles())
    numbers = {name: egress.number for name, egress in inbound(before).items()}
    gone = facts(
        *TWO_WANS.interfaces.values(),
        routes=tuple(r for r in TWO_WANS.routes if r.interface != "wan1"),
    )
    after = discover(gone, InterfaceRoles(), before)
    assert after.wans == ("wan2",)
    assert inbound(after)["wan2"].number == numbers["wan2"]
    inmark = {'"wan2"': f"{egress_mark(numbers['wan2']):#010x}", '"wan9"': "0x20000009"}
    later = discover(gone, InterfaceRoles(), recalled(['"lan0" . 10.77.0.0/24'], inmark, ()))
    assert inbound(later)["wan2"].number == numbers["wan2"]
    far = egress_mark(inbound_number(3))  # WANs with lower numbers are not in the table
    later = discover(gone, InterfaceRoles(), recalled([], {'"wan2"': f"{far:#010x}"}, ()))
    assert egress_mark(inbound(later)["wan2"].number) == far


def test_lans_are_recalled_from_an_earlier_table() -> None:
    known = recalled(['"lan0" . 10.77.0.0/24', '"lan0" . 10.88.0.5'], {}, ())
    assert known.lans == ("lan0",)
    assert known.lan_networks == (
        ("lan0", IPv4Network("10.77.0.0/24")),
        ("lan0", IPv4Network("10.88.0.5/32")),
    )
    for strange in ("lan0", '"lan0" . 10.0.0.0-10.0.0.5', '"a" . "b" . 10.0.0.0/8'):
        with pytest.raises(ValueError, match=r"."):
            recalled([strange], {}, ())


PRIVATE_WAN = interface("wan0", "192.168.1.2/24")
OUT = default("wan0", "192.168.1.1")


def test_container_bridges_lines_and_ports_are_no_lan() -> None:
    docker = interface("docker0", "172.17.0.1/16")
    line = interface("l2tp_1", "10.9.0.2/32", is_point_to_point=True)
    port = interface("port1", "10.5.0.1/24", master=4)
    found = discover(facts(LOOPBACK, LAN, WAN1, docker, line, port), InterfaceRoles(wan=("wan1",)))
    assert found.lans == ("lan0",)


def test_networks_routed_behind_a_lan_belong_to_it() -> None:
    behind = Route(
        destination=IPv4Network("10.88.0.0/16"),
        interface="lan0",
        gateway=IPv4Address("10.77.0.254"),
    )
    found = discover(
        facts(LAN, WAN1, routes=(behind,)), InterfaceRoles(lan=("lan0",), wan=("wan1",))
    )
    assert ("lan0", IPv4Network("10.88.0.0/16")) in found.lan_networks


def test_an_uplink_uses_the_gateway_of_its_default_route() -> None:
    assert uplink("wan2", TWO_WANS, InterfaceRoles()).gateway == IPv4Address("192.168.1.1")


def test_an_uplink_without_a_gateway_blocks_unless_it_is_configured() -> None:
    alone = facts(LAN, WAN1)
    assert not uplink("wan1", alone, InterfaceRoles()).has_route
    given = InterfaceRoles(gateways={"wan1": IPv4Address("198.51.100.1")})
    assert uplink("wan1", alone, given).gateway == IPv4Address("198.51.100.1")


def test_an_interface_that_is_down_or_gone_is_no_egress() -> None:
    down = facts(
        interface("wan1", "198.51.100.2/30", is_up=False),
        routes=(default("wan1", "198.51.100.1"),),
    )
    assert not uplink("wan1", down, InterfaceRoles()).has_route
    assert not uplink("wan9", TWO_WANS, InterfaceRoles()).has_route


def test_a_line_is_an_egress_once_its_peer_is_known() -> None:
    dialling = interface("l2tp_1", "10.9.0.2/32", is_point_to_point=True)
    online = interface(
        "l2tp_1", "10.9.0.2/32", is_point_to_point=True, peers=(IPv4Address("10.9.0.1"),)
    )
    assert not uplink("l2tp_1", facts(dialling), InterfaceRoles()).has_route
    assert uplink("l2tp_1", facts(online), InterfaceRoles()).has_route


def test_inbound_flows_of_wans_have_their_own_numbers() -> None:
    answers = inbound(discover(TWO_WANS, InterfaceRoles()))
    assert [(name, way.number) for name, way in answers.items()] == [
        ("wan1", 0x7000),
        ("wan2", 0x7001),
    ]


def test_a_one_arm_device_stays_so_when_another_interface_comes_and_goes() -> None:
    only = interface("eth0", "192.168.1.2/24")
    routes = (default("eth0", "192.168.1.1"),)
    before = discover(facts(LOOPBACK, only, routes=routes), InterfaceRoles())
    more = interface("wlan0", "192.168.50.1/24")
    found = discover(facts(LOOPBACK, only, more, routes=routes), InterfaceRoles(), before)
    assert (set(found.lans), found.wans) == ({"eth0", "wlan0"}, ("eth0",))
    later = discover(facts(LOOPBACK, only, routes=routes), InterfaceRoles(), found)
    assert "eth0" in later.lans
    inmark = {'"eth0"': f"{egress_mark(inbound(before)['eth0'].number):#010x}"}
    next_netd = recalled(['"eth0" . 192.168.1.0/24'], inmark, ())
    assert (
        "eth0"
        in discover(facts(LOOPBACK, only, more, routes=routes), InterfaceRoles(), next_netd).lans
    )


def test_a_network_that_moves_to_another_lan_belongs_to_that() -> None:
    network = IPv4Network("10.77.0.0/24")
    before = discover(facts(LOOPBACK, LAN), InterfaceRoles())
    moved = facts(LOOPBACK, interface("lan0"), interface("br-lan", "10.77.0.1/24", index=9))
    found = discover(moved, InterfaceRoles(), before)
    assert set(found.lans) == {"br-lan", "lan0"}
    assert found.lan_networks == (("br-lan", network),)


def test_interfaces_with_a_default_route_are_routable() -> None:
    assert discover(TWO_WANS, InterfaceRoles()).routable == ("wan1", "wan2")
    assert discover(facts(LAN, WAN1), InterfaceRoles(wan=("wan1",))).routable == ()


def test_a_wan_without_its_route_is_no_lan_for_the_next_netd() -> None:
    lan, wan = interface("lan0", "10.77.0.1/24"), interface("wan1", "198.51.100.2/24")
    other = interface("wan2", "192.168.100.2/24")
    routes = (default("wan1", "198.51.100.1"), default("wan2", "192.168.100.1"))
    before = discover(facts(LOOPBACK, lan, wan, other, routes=routes), InterfaceRoles())
    gone = facts(LOOPBACK, lan, wan, other, routes=routes[:1])
    assert discover(gone, InterfaceRoles(), before).lans == ("lan0",)
    inmark = {'"wan1"': f"{egress_mark(inbound(before)['wan1'].number):#010x}"}
    outside = ['"l2tp_1"', '"wan2"', '"wan1"']
    next_netd = recalled(['"lan0" . 10.77.0.0/24'], inmark, outside)
    assert next_netd.seen_wans == ("wan1", "wan2")
    assert discover(gone, InterfaceRoles(), next_netd).lans == ("lan0",)
