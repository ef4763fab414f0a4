"""The clients that may take the fast path, and its next hops."""

from __future__ import annotations

from collections.abc import Iterable
from ipaddress import IPv4Address, IPv4Interface, IPv4Network

import msgspec
import pytest

from egressd.model.device import InterfaceRoles
from egressd.model.facts import Facts, Interface, Route
from egressd.model.nouns import Line
from egressd.model.plan import Egress, GlobalPolicy, Group, Limit, Plan, WhitelistPlan
from egressd.planner.fast_path import (
    APART_MAX,
    WAYS_MAX,
    FastEgress,
    FastWay,
    Neighbourhood,
    Place,
    fast_egresses,
    place,
    routed_groups,
)
from egressd.planner.groups import Choice
from egressd.planner.registry import (
    MARK_DIRECT,
    MARK_REJECT,
    egress_mark,
    flow_mark,
    group_mark,
    line_mark,
    node_mark,
)
from egressd.planner.topology import discover
from tests.support.nodes.instances import node_instance

CLIENT = "10.77.0.11"
ROLES = InterfaceRoles(lan=("lan0",), wan=("wan1", "wan2"))
LAN, WAN1, WAN2 = 2, 7, 8
OWN = IPv4Address("198.51.100.10")
EPOCH = 3


def facts(*routes: Route, **mtus: int) -> Facts:
    def interface(name: str, index: int, address: str) -> Interface:
        addresses = (IPv4Interface(address),)
        mtu = mtus.get(name, 1500)
        return Interface(name=name, index=index, is_up=True, mtu=mtu, addresses=addresses)

    return Facts(
        interfaces={
            "lan0": interface("lan0", LAN, "10.77.0.1/24"),
            "wan1": interface("wan1", WAN1, "198.51.100.10/24"),
            "wan2": interface("wan2", WAN2, "198.51.101.10/24"),
        },
        routes=(
            connected("10.77.0.0/24", "lan0"),
            connected("198.51.100.0/24", "wan1"),
            connected("198.51.101.0/24", "wan2"),
            gateway("0.0.0.0/0", "wan1", "198.51.100.1", 100),
            gateway("0.0.0.0/0", "wan2", "198.51.101.1", 200),
            *routes,
        ),
    )


def connected(network: str, interface: str) -> Route:
    return Route(destination=IPv4Network(network), interface=interface)


def gateway(network: str, interface: str, via: str, metric: int = 0) -> Route:
    destination, address = IPv4Network(network), IPv4Address(via)
    return Route(destination=destination, interface=interface, gateway=address, metric=metric)


def plan(mark: int, *, up: int = 0, down: int = 0, address: str = CLIENT) -> Plan:
    return Plan(
        hosts={address: mark},
        limits={address: Limit(number=1, upload_kbps=up, download_kbps=down)},
        egresses={"wan1": Egress(number=1), "wan2": Egress(number=2)},
        whitelist=WhitelistPlan(epoch=EPOCH),
    )


def found(wanted: Plan, seen: Facts | None = None) -> Place | None:
    seen = seen or facts()
    (address,) = wanted.hosts
    return place(address, wanted, Neighbourhood(seen, discover(seen, ROLES)))


def ways_of(
    seen: Facts, wanted: Plan | None = None, roles: InterfaceRoles = ROLES
) -> dict[int, FastEgress]:
    """Return the egress of each mark that flows may have while their client has it, too."""
    wanted = wanted or plan(MARK_DIRECT)
    found = fast_egresses(wanted, seen, discover(seen, roles), roles, {})
    assert all(way.flow == flow_mark(way.client, EPOCH) for way in found)
    return {way.client: egress for way, egress in found.items()}


@pytest.mark.parametrize("mark", [MARK_DIRECT, egress_mark(2), line_mark(3)])
def test_a_client_with_a_kernel_routed_target_takes_the_fast_path(mark: int) -> None:
    assert found(plan(mark)) == Place(mark, LAN)


@pytest.mark.parametrize("mark", [node_mark(7), MARK_REJECT])
def test_p1_a_client_with_another_target_takes_the_slow_path(mark: int) -> None:
    assert found(plan(mark)) is None


GROUP = group_mark(4)


def grouped(*members: str) -> Plan:
    """Return a plan whose client has a group as its target."""
    wanted = plan(GROUP)
    wanted.instances = {key: node_instance(int(key[5:])) for key in members if key[:5] == "node:"}
    wanted.groups = {
        "group:4": Group(
            mark=GROUP, members=members, strategy="fallback", url="http://site.test", interval_s=10
        )
    }
    return wanted


def test_clients_of_a_group_of_wans_take_the_fast_path_by_living_ones() -> None:
    wanted, seen = grouped("Interface:wan2", "Interface:wan1", "node:7"), facts()
    topology = discover(seen, ROLES)
    groups = routed_groups(wanted)
    assert place(CLIENT, wanted, Neighbourhood(seen, topology), groups) == Place(GROUP, LAN)
    choices = {"group:4": Choice(living=("Interface:wan2", "node:7"), elected="Interface:wan2")}
    ways = fast_egresses(wanted, seen, topology, ROLES, choices)
    of_group = {way.flow: egress.interface for way, egress in ways.items() if way.client == GROUP}
    assert of_group == {flow_mark(egress_mark(2), EPOCH): WAN2}
    assert not any(w.client == GROUP for w in fast_egresses(wanted, seen, topology, ROLES, {}))


def test_more_groups_than_the_kernels_map_has_room_for_leave_out_the_last() -> None:
    wanted, seen = grouped("Interface:wan2", "Interface:wan1"), facts()
    one = wanted.groups["group:4"]
    wanted.groups = {
        f"group:{n}": msgspec.structs.replace(one, mark=group_mark(n))
        for n in range(1, WAYS_MAX // 2 + 10)
    }
    choices = dict.fromkeys(wanted.groups, Choice(living=one.members))
    ways = fast_egresses(wanted, seen, discover(seen, ROLES), ROLES, choices)
    assert len(ways) == WAYS_MAX
    assert {way.client for way in ways} >= {egress_mark(1), egress_mark(2), group_mark(1)}


def test_p1_a_client_of_a_group_of_nodes_takes_the_slow_path() -> None:
    wanted, seen = grouped("node:7", "node:8"), facts()
    assert routed_groups(wanted) == set()
    assert place(CLIENT, wanted, Neighbourhood(seen, discover(seen, ROLES)), set()) is None


@pytest.mark.parametrize(("up", "down"), [(1000, 0), (0, 1000)])
def test_a_client_with_a_speed_limit_takes_the_slow_path(up: int, down: int) -> None:
    assert found(plan(MARK_DIRECT, up=up, down=down)) is None


@pytest.mark.parametrize("policy", [GlobalPolicy(stopped=True), GlobalPolicy(opened=True)])
def test_p1_all_clients_take_the_slow_path_while_rules_are_suspended(policy: GlobalPolicy) -> None:
    wanted = plan(MARK_DIRECT)
    wanted.policy = policy
    assert found(wanted) is None


def test_clients_of_a_lan_occupied_by_other_programs_take_the_slow_path() -> None:
    seen = facts()
    topology = discover(seen, ROLES)
    free, occupied = (Neighbourhood(seen, topology, others) for others in ((WAN1,), (LAN,)))
    assert place(CLIENT, plan(MARK_DIRECT), free) == Place(MARK_DIRECT, LAN)
    assert place(CLIENT, plan(MARK_DIRECT), occupied) is None
    assert (free.indexes, occupied.indexes) == ({LAN}, set())
    assert free != occupied  # so that clients are examined again


def test_a_client_behind_another_router_takes_the_slow_path() -> None:
    assert found(plan(MARK_DIRECT, address="10.88.0.9")) is None
    seen = facts(gateway("10.77.0.8/29", "lan0", "10.77.0.2"))
    assert found(plan(MARK_DIRECT), seen) is None
    assert found(plan(MARK_DIRECT, address="10.77.0.20"), seen) is not None


def test_a_client_that_may_be_on_two_lans_takes_the_slow_path() -> None:
    seen = facts()
    second = Interface(name="lan1", index=3, is_up=True, addresses=(IPv4Interface("10.77.0.2/24"),))
    seen = msgspec.structs.replace(seen, interfaces={**seen.interfaces, "lan1": second})
    topology = discover(seen, InterfaceRoles(lan=("lan0", "lan1"), wan=ROLES.wan))
    assert place(CLIENT, plan(MARK_DIRECT), Neighbourhood(seen, topology)) is None


def test_clients_of_an_occupied_lan_within_another_take_the_slow_path() -> None:
    seen = facts()
    second = Interface(name="lan1", index=3, is_up=True, addresses=(IPv4Interface("10.77.0.9/29"),))
    seen = msgspec.structs.replace(seen, interfaces={**seen.interfaces, "lan1": second})
    topology = discover(seen, InterfaceRoles(lan=("lan0", "lan1"), wan=ROLES.wan))
    within, beside = plan(MARK_DIRECT), plan(MARK_DIRECT, address="10.77.0.20")
    for occupied, found in (((), Place(MARK_DIRECT, 3)), ((3,), None)):
        near = Neighbourhood(seen, topology, occupied)
        assert place(CLIENT, within, near) == found
        assert place("10.77.0.20", beside, near) == Place(MARK_DIRECT, LAN)


def test_next_hops_are_gateways_except_for_neighbours() -> None:
    neighbours = IPv4Network("198.51.100.0/24")
    first = FastEgress(WAN1, IPv4Address("198.51.100.1"), OWN, (neighbours,))
    found = ways_of(facts())
    assert found[egress_mark(1)] == first
    assert found[egress_mark(2)].interface == WAN2


def test_direct_follows_the_main_table() -> None:
    found = ways_of(facts(gateway("192.0.2.0/24", "wan2", "198.51.101.1")))
    direct = found[MARK_DIRECT]
    assert (direct.interface, str(direct.gateway)) == (WAN1, "198.51.100.1")
    apart = {str(network) for network in direct.apart}
    assert apart == {"10.77.0.0/24", "198.51.100.0/23", "192.0.2.0/24"}


def test_direct_has_no_next_hop_if_the_main_table_has_two_equal_routes() -> None:
    seen = facts()
    equal = [msgspec.structs.replace(route, metric=0) for route in seen.routes]
    assert MARK_DIRECT not in ways_of(msgspec.structs.replace(seen, routes=tuple(equal)))


@pytest.mark.parametrize("mtus", [{"wan1": 1492}, {"wan1": 9000}, {"lan0": 9000}])
def test_packets_are_measured_if_an_egress_has_another_mtu_than_a_lan(mtus: dict[str, int]) -> None:
    assert ways_of(facts(**mtus))[egress_mark(1)].has_other_mtu
    assert not ways_of(facts())[egress_mark(1)].has_other_mtu


LINE = Interface(
    name="l2tp_1",
    index=9,
    is_up=True,
    is_point_to_point=True,
    has_frames=False,
    addresses=(IPv4Interface("100.99.0.2/32"),),
    peers=(IPv4Address("100.99.0.1"),),
)


def by_line(
    line: Interface = LINE,
    planned: tuple[str, ...] = ("l2tp_1",),
    outdated: tuple[str, ...] = (),
) -> FastEgress | None:
    """Return the egress of a line's clients."""
    wanted = plan(line_mark(3))
    wanted.egresses = {"l2tp_1": Egress(number=3)}
    wanted.lines = {
        name: Line(id=3, type="l2tp", name=name, server="s", port=1701, username="u", password="p")
        for name in planned
    }
    seen = facts()
    seen = msgspec.structs.replace(seen, interfaces={**seen.interfaces, "l2tp_1": line})
    found = fast_egresses(wanted, seen, discover(seen, ROLES), ROLES, {}, outdated=outdated)
    return found.get(FastWay(line_mark(3), flow_mark(line_mark(3), EPOCH)))


def test_a_line_needs_no_gateway_and_its_packets_are_measured() -> None:
    found = by_line()
    assert found == FastEgress(
        9, None, IPv4Address("100.99.0.2"), (), has_frames=False, has_other_mtu=True
    )


@pytest.mark.parametrize(
    "changes",
    [
        {"is_up": False},
        {"addresses": ()},
        {"peers": ()},
        {"has_frames": True},  # it has neighbours then, and no gateway among them
    ],
)
def test_a_line_that_is_not_up_or_has_frames_has_no_next_hop(changes: dict[str, object]) -> None:
    assert by_line(msgspec.structs.replace(LINE, **changes)) is None


def test_p1_a_line_that_should_not_be_up_has_no_next_hop() -> None:
    assert by_line(planned=()) is None
    assert by_line(outdated=("l2tp_1",)) is None


def test_an_egress_with_too_many_exceptions_has_no_next_hop() -> None:
    # Five exceptions fit for DIRECT beside the three networks of the machine's own, two of which
    # merge.
    few = [gateway(f"192.0.{2 * n}.0/24", "wan2", "198.51.101.1") for n in range(APART_MAX - 2)]
    assert MARK_DIRECT in ways_of(facts(*few))
    many = [*few, gateway("192.0.100.0/24", "wan2", "198.51.101.1")]
    assert MARK_DIRECT not in ways_of(facts(*many))


def test_p2_an_egress_that_is_down_or_has_no_gateway_has_no_next_hop() -> None:
    seen = facts()
    down = msgspec.structs.replace(seen.interfaces["wan2"], is_up=False)
    interfaces = {**seen.interfaces, "wan2": down}
    assert egress_mark(2) not in ways_of(msgspec.structs.replace(seen, interfaces=interfaces))
    routes = tuple(route for route in seen.routes if route.gateway is None)
    assert not ways_of(msgspec.structs.replace(seen, routes=routes))


@pytest.mark.parametrize(
    ("addresses", "passive", "chosen"),
    [
        (("198.51.100.10/24", "198.51.100.11/24"), ("198.51.100.11",), "198.51.100.10"),
        (("198.51.100.10/24", "203.0.113.9/32"), (), "198.51.100.10"),
        (("203.0.113.9/32", "198.51.100.10/24"), (), "198.51.100.10"),
        (("203.0.113.9/32", "203.0.113.8/32"), (), "203.0.113.9"),
        (("169.254.1.1/16", "203.0.113.8/32"), ("169.254.1.1",), "203.0.113.8"),
    ],
)
def test_a_next_hop_has_the_address_that_masquerade_chooses(
    addresses: tuple[str, ...], passive: tuple[str, ...], chosen: str
) -> None:
    found = ways_of(with_addresses(addresses, passive))
    assert str(found[egress_mark(1)].address) == chosen
    assert str(found[egress_mark(2)].address) == "198.51.101.10"


def test_an_egress_without_an_address_for_its_packets_has_no_next_hop() -> None:
    found = ways_of(with_addresses(("169.254.1.1/16",), ("169.254.1.1",)))
    assert found.keys() == {egress_mark(2)}


@pytest.mark.parametrize(("has_it", "chosen"), [(True, "203.0.113.9"), (False, str(OWN))])
def test_an_egress_has_its_configured_source_while_the_interface_has_it(
    has_it: bool, chosen: str
) -> None:
    roles = msgspec.structs.replace(ROLES, sources={"wan1": IPv4Address("203.0.113.9")})
    others = ["203.0.113.9/32"] if has_it else []
    seen = with_addresses(["198.51.100.10/24", *others])
    found = ways_of(seen, roles=roles)
    assert str(found[egress_mark(1)].address) == str(found[MARK_DIRECT].address) == chosen


def with_addresses(addresses: Iterable[str], passive: Iterable[str] = ()) -> Facts:
    """Return the facts with these addresses of ``wan1``."""
    seen = facts()
    wan1 = msgspec.structs.replace(
        seen.interfaces["wan1"],
        addresses=tuple(map(IPv4Interface, addresses)),
        passive=tuple(map(IPv4Address, passive)),
    )
    return msgspec.structs.replace(seen, interfaces={**seen.interfaces, "wan1": wan1})


def test_a_client_with_a_host_route_elsewhere_takes_the_slow_path() -> None:
    assert found(plan(MARK_DIRECT), facts(connected("10.77.0.11/32", "wan2"))) is None


def test_a_line_has_no_next_hop() -> None:
    wanted = plan(line_mark(3))
    wanted.egresses["l2tp_1"] = Egress(number=3)
    assert line_mark(3) not in ways_of(facts(), wanted)
