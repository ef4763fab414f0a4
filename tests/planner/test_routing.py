"""Routes and policy rules: the interface that a packet leaves by."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv4Interface, IPv4Network

import pytest
from msgspec.structs import replace

from egressd.model.device import InterfaceRoles
from egressd.model.facts import Facts, ForeignRule, Interface, Route
from egressd.model.plan import Egress
from egressd.planner.registry import (
    PRIORITY_LAN_DENY,
    PRIORITY_SOURCE,
    egress_table,
    inbound_number,
)
from egressd.planner.routing import Routing, desired
from egressd.planner.topology import discover

ROLES = InterfaceRoles(lan=("lan0",), wan=("wan1", "wan2"))
ENGINE_UID = 990


def interface(name: str, *addresses: str) -> Interface:
    return Interface(name=name, index=2, is_up=True, addresses=tuple(map(IPv4Interface, addresses)))


def facts(*more: Interface, without: str = "", rules: tuple[ForeignRule, ...] = ()) -> Facts:
    every = (
        interface("lan0", "10.77.0.1/24"),
        interface("wan1", "192.0.2.2/30"),
        interface("wan2", "198.51.100.7/24", "198.51.100.2/24"),
        *more,
    )
    default = IPv4Network("0.0.0.0/0")
    gateways = {"wan1": "192.0.2.1", "wan2": "198.51.100.1"}
    return Facts(
        interfaces={i.name: i for i in every if i.name != without},
        routes=tuple(
            Route(destination=default, interface=name, gateway=IPv4Address(gateway))
            for name, gateway in gateways.items()
        ),
        policy_rules=rules,
    )


def routing(
    seen: Facts,
    egresses: dict[str, Egress] | None = None,
    roles: InterfaceRoles = ROLES,
    resolvers: tuple[str, ...] = (),
) -> Routing:
    return desired(
        egresses or {},
        facts=seen,
        topology=discover(seen, roles),
        roles=roles,
        engine_uid=ENGINE_UID,
        resolvers=resolvers,
    )


def tables_by_source(found: Routing) -> dict[str, int]:
    rules = [rule for rule in found.rules if rule.source is not None]
    assert all(rule.iif == "lo" and rule.action == "lookup" for rule in rules)
    assert {rule.priority for rule in rules} <= {PRIORITY_SOURCE}
    return {str(rule.source): rule.table for rule in rules}


def test_each_address_of_a_wan_has_a_policy_rule_used_by_clients_or_not() -> None:
    first, second = egress_table(inbound_number(0)), egress_table(inbound_number(1))
    assert tables_by_source(routing(facts())) == {
        "192.0.2.2": first,
        "198.51.100.7": second,
        "198.51.100.2": second,
    }


def test_a_line_and_another_egress_have_policy_rules_too() -> None:
    line = interface("l2tp_1", "10.9.9.2/32")
    found = routing(facts(line), {"l2tp_1": Egress(number=9)})
    assert tables_by_source(found)["10.9.9.2"] == egress_table(9)


def test_an_address_shared_with_a_lan_belongs_to_the_lan() -> None:
    line = interface("l2tp_1", "10.77.0.1/32")
    found = routing(facts(line), {"l2tp_1": Egress(number=9)})
    assert "10.77.0.1" not in tables_by_source(found)


def test_in_one_arm_use_the_only_address_leaves_by_its_own_gateway() -> None:
    arm = Facts(
        interfaces={"lan0": interface("lan0", "10.77.0.1/24")},
        routes=(
            Route(
                destination=IPv4Network("0.0.0.0/0"),
                interface="lan0",
                gateway=IPv4Address("10.77.0.254"),
            ),
        ),
    )
    found = routing(arm, roles=InterfaceRoles(lan=("lan0",), wan=("lan0",)))
    assert tables_by_source(found) == {"10.77.0.1": egress_table(inbound_number(0))}


def test_a_missing_wan_has_no_rule() -> None:
    assert "198.51.100.7" not in tables_by_source(routing(facts(without="wan2")))


AUTOMATIC = InterfaceRoles(lan=("lan0",))


@pytest.mark.parametrize(
    ("roles", "name"),
    [(ROLES, "other0"), (AUTOMATIC, "other0"), (AUTOMATIC, "wan2")],
    ids=["configured-renamed", "renamed", "without-default-route"],
)
def test_packets_of_a_former_wan_leave_by_its_interface_only(
    roles: InterfaceRoles, name: str
) -> None:
    """Past fault: the kernel's resets from a renamed WAN's address left by another WAN."""
    machine = facts(without="wan2")
    near, behind = IPv4Network("198.51.100.0/24"), IPv4Network("10.8.0.0/16")
    machine = replace(
        machine,
        interfaces={**machine.interfaces, name: interface(name, "198.51.100.7/24")},
        routes=(
            *(route for route in machine.routes if route.interface != "wan2"),
            Route(destination=near, interface=name),
            Route(
                destination=behind, interface=name, gateway=IPv4Address("198.51.100.8"), metric=9
            ),
            Route(
                destination=behind, interface=name, gateway=IPv4Address("198.51.100.9"), metric=3
            ),
        ),
    )
    topology = discover(facts(), roles)
    for _ in range(2):
        topology = discover(machine, roles, topology)
    found = desired({}, facts=machine, topology=topology, roles=roles, engine_uid=ENGINE_UID)
    table = tables_by_source(found)["198.51.100.7"]
    assert {str(r) for r in found.routes if r.table == table and r.destination.version == 4} == {
        f"{near} dev {name} table {table}",
        f"{behind} via 198.51.100.9 dev {name} table {table}",
        f"unreachable default table {table} metric 4294967295",
    }
    assert name in topology.seen_wans


def test_a_wan_that_is_no_longer_configured_keeps_its_default_route() -> None:
    """Past fault: answers from its addresses had no route, so SSH by it ended."""
    found_before = discover(facts(), AUTOMATIC)
    only_one = InterfaceRoles(lan=("lan0",), wan=("wan1",))
    topology = discover(facts(), only_one, found_before)
    found = desired({}, facts=facts(), topology=topology, roles=only_one, engine_uid=ENGINE_UID)
    table = tables_by_source(found)["198.51.100.7"]
    assert f"default via 198.51.100.1 dev wan2 table {table}" in map(str, found.routes)


def ways(found: Routing, destination: str) -> set[str]:
    return {str(route) for route in found.routes if str(route.destination) == destination}


def test_a_resolver_in_a_lan_is_reached_there_by_clients_of_every_egress() -> None:
    table = egress_table(7)
    inner, outer, own = "10.77.0.53", "9.9.9.9", "10.77.0.1"
    found = routing(facts(), {"wan1": Egress(number=7)}, resolvers=(inner, outer, own))
    told = ways(found, f"{inner}/32")
    assert f"{inner}/32 dev lan0 table {table}" in told
    # Nor is it asked by the WAN while the LAN is down.
    assert f"unreachable {inner}/32 table {table} metric 4294967295" in told
    assert not ways(found, f"{outer}/32")


def priorities(found: Routing, family: int = 4) -> list[int]:
    return sorted({rule.priority for rule in found.rules if rule.family == family})


NATURAL = priorities(routing(facts()))


def test_later_rules_of_other_programs_change_nothing() -> None:
    behind = ForeignRule(priority=PRIORITY_LAN_DENY + 1)
    assert routing(facts(rules=(behind,))) == routing(facts())


def test_our_rules_move_before_those_of_wg_quick_and_keep_their_order() -> None:
    wg_quick = (ForeignRule(priority=99), ForeignRule(priority=98))
    found = routing(facts(rules=wg_quick))
    assert priorities(found) == list(range(98 - len(NATURAL), 98))
    assert found.problems == ()
    moved = dict(zip(NATURAL, priorities(found), strict=True))
    assert [rule.priority for rule in found.rules if rule.family == 4] == [
        moved[rule.priority] for rule in routing(facts()).rules if rule.family == 4
    ]


def test_each_family_moves_separately() -> None:
    found = routing(facts(rules=(ForeignRule(priority=99, family=6),)))
    assert priorities(found) == NATURAL
    assert priorities(found, family=6)[-1] == 98


def test_foreign_rules_that_match_no_packet_of_ours_change_nothing() -> None:
    harmless = (
        ForeignRule(priority=50, iif="docker0"),
        ForeignRule(priority=51, is_vrf=True),
    )
    assert routing(facts(rules=harmless)) == routing(facts())
    assert priorities(routing(facts(rules=(ForeignRule(priority=50, iif="lan0"),)))) != NATURAL


def test_a_lack_of_free_priorities_is_reported() -> None:
    found = routing(facts(rules=(ForeignRule(priority=0), ForeignRule(priority=3))))
    assert priorities(found) == NATURAL
    (problem,) = found.problems
    assert "priorities 0, 3" in problem
    assert "ip rule show" in problem
