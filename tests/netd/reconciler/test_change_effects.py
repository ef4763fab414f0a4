"""The clients that a change moves, determined before anything is touched."""

from __future__ import annotations

from collections.abc import Mapping
from ipaddress import IPv4Address, IPv4Network
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from egressd.model.plan import Change, GlobalPolicy, Patch, Plan, WhitelistPlan, difference
from egressd.netd.kernel.address_ranges import RangeMap, Ranges
from egressd.netd.reconciler import change_effects
from egressd.netd.reconciler.change_effects import engine_served, with_epoch
from egressd.planner.flatten import flatten
from egressd.planner.registry import MARK_DIRECT, MARK_EPOCHS, MARK_REJECT, node_mark

NODE = node_mark(1)
RANGE = "10.0.1.0-10.0.1.255"
LISTED = WhitelistPlan(mark=MARK_DIRECT, epoch=3)


def change(**parts: Any) -> Change:
    return Change(base=1, revision=2, **parts)


def moved(change: Change, plan: Plan) -> list[str]:
    after = RangeMap(dict(change.nets.applied(plan.nets)))
    return change_effects.moved(change, plan, RangeMap(plan.nets), after)


def test_a_host_whose_mark_changes_moves() -> None:
    plan = Plan(hosts={"10.0.0.1": NODE, "10.0.0.2": NODE, "10.0.0.3": NODE})
    put = {"10.0.0.1": NODE, "10.0.0.2": MARK_DIRECT, "10.0.0.4": MARK_DIRECT}
    hosts = Patch(put=put, drop=("10.0.0.3", "10.0.0.9"))
    assert moved(change(hosts=hosts), plan) == ["10.0.0.2", "10.0.0.4", "10.0.0.3"]


def plan_of(hosts: Mapping[str, int], nets: Mapping[str, int]) -> Plan:
    """Return the plan of these rules, as the planner makes it."""
    return Plan(hosts={**hosts}, nets=flatten({IPv4Network(n): nets[n] for n in nets}))


def test_only_the_part_of_a_range_with_a_changed_mark_moves() -> None:
    around = {"10.0.1.0/24": NODE}
    before, after = plan_of({}, around), plan_of({}, {**around, "10.0.1.64/28": MARK_DIRECT})
    piece = ["10.0.1.64-10.0.1.79"]
    assert moved(difference(before, after), before) == piece
    assert moved(difference(after, before), after) == piece


def test_no_client_moves_if_an_inner_rule_has_the_target_of_the_outer() -> None:
    before = plan_of({}, {"10.0.1.0/24": NODE})
    after = plan_of({"10.0.1.7": NODE}, {"10.0.1.0/24": NODE, "10.0.1.64/28": NODE})
    assert moved(difference(before, after), before) == []
    assert moved(difference(after, before), after) == []


hosts = st.dictionaries(
    st.integers(0, 15).map(lambda n: f"10.0.0.{n}"), st.sampled_from([NODE, MARK_DIRECT])
)
nets = st.dictionaries(
    st.tuples(st.integers(0, 15), st.integers(28, 32)).map(
        lambda pair: str(IPv4Network((f"10.0.0.{pair[0]}", pair[1]), strict=False))
    ),
    st.sampled_from([NODE, MARK_DIRECT, MARK_REJECT]),
    max_size=5,
)


@given(hosts, nets, hosts, nets)
def test_a_client_moves_if_its_most_specific_rule_changes_the_target(
    hosts_before: dict[str, int],
    nets_before: dict[str, int],
    hosts_after: dict[str, int],
    nets_after: dict[str, int],
) -> None:
    before, after = plan_of(hosts_before, nets_before), plan_of(hosts_after, nets_after)
    clients = moved(difference(before, after), before)
    inside = Ranges(clients)
    for number in range(16):
        address = IPv4Address(f"10.0.0.{number}")
        client = str(address)
        is_ruled = client in before.hosts or client in after.hosts
        is_moved = client in clients if is_ruled else address.packed in inside
        assert is_moved == (mark_of(before, client) != mark_of(after, client))


def mark_of(plan: Plan, client: str) -> int:
    if client in plan.hosts:
        return plan.hosts[client]
    for text, mark in plan.nets.items():
        first, last = map(IPv4Address, text.split("-"))
        if first <= IPv4Address(client) <= last:
            return mark
    return 0


def test_all_clients_move_with_a_changed_whitelist_and_none_otherwise() -> None:
    plan = Plan(hosts={"10.0.0.1": NODE}, nets={RANGE: NODE}, whitelist=LISTED)
    same = with_epoch(change(whitelist=WhitelistPlan(mark=MARK_DIRECT)), plan)
    assert same.whitelist is None
    assert moved(same, plan) == []
    other = with_epoch(change(whitelist=WhitelistPlan(mark=NODE)), plan)
    assert other.whitelist is not None
    assert other.whitelist.epoch == LISTED.epoch + 1
    assert moved(other, plan) == ["10.0.0.1", RANGE]


def epoch_given(wanted: WhitelistPlan, current: WhitelistPlan) -> int:
    given = with_epoch(change(whitelist=wanted), Plan(whitelist=current)).whitelist
    return current.epoch if given is None else given.epoch


@pytest.mark.parametrize(("epoch", "after"), [(1, 2), (MARK_EPOCHS - 1, 1)])
def test_epochs_wrap_around(epoch: int, after: int) -> None:
    current = WhitelistPlan(mark=MARK_DIRECT, epoch=epoch)
    assert epoch_given(WhitelistPlan(mark=NODE), current) == after


@pytest.mark.parametrize("mark", [MARK_DIRECT, NODE])
@pytest.mark.parametrize("epoch", [1, 2, 9])
def test_the_epoch_is_the_one_of_the_state(mark: int, epoch: int) -> None:
    assert epoch_given(WhitelistPlan(mark=mark, epoch=epoch), WhitelistPlan(epoch=3)) == epoch


def test_p1_another_whitelist_never_has_the_epoch_of_the_one_before() -> None:
    assert epoch_given(WhitelistPlan(mark=NODE, epoch=3), LISTED) == 4
    assert epoch_given(WhitelistPlan(mark=MARK_DIRECT, epoch=3), LISTED) == 3


def test_only_clients_with_engine_sockets_are_looked_up() -> None:
    hosts = {"10.0.0.1": NODE, "10.0.0.2": MARK_DIRECT, "10.0.0.3": MARK_REJECT}
    clients = [*hosts, "10.0.0.4"]
    assert engine_served(clients, Plan(hosts=hosts)) == ["10.0.0.1", "10.0.0.4"]
    assert engine_served(clients, Plan(hosts=hosts, nets={RANGE: NODE})) == clients
    assert engine_served(clients, Plan(hosts=hosts, whitelist=LISTED)) == clients
    local = GlobalPolicy(local_resolvers=("10.0.0.53",))
    assert engine_served(clients, Plan(hosts=hosts, policy=local)) == clients
