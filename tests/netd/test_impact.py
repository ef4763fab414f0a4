"""Whom a change moves, told before anything is touched."""

from __future__ import annotations

from typing import Any

import pytest

from egressd.model.plan import Change, Patch, Plan, WhitelistPlan
from egressd.netd.impact import engine_served, is_more_than_hosts, moved, with_epoch
from egressd.planner.registry import MARK_DIRECT, MARK_EPOCHS, MARK_REJECT, node_mark

NODE = node_mark(1)
RANGE = "10.0.1.0-10.0.1.255"
LISTED = WhitelistPlan(mark=MARK_DIRECT, epoch=3)


def change(**parts: Any) -> Change:
    return Change(base=1, revision=2, **parts)


def test_a_host_moves_when_its_mark_becomes_another() -> None:
    plan = Plan(hosts={"10.0.0.1": NODE, "10.0.0.2": NODE, "10.0.0.3": NODE})
    put = {"10.0.0.1": NODE, "10.0.0.2": MARK_DIRECT, "10.0.0.4": MARK_DIRECT}
    hosts = Patch(put=put, drop=("10.0.0.3", "10.0.0.9"))
    assert moved(change(hosts=hosts), plan) == ["10.0.0.2", "10.0.0.4", "10.0.0.3"]


def test_ranges_move_whole() -> None:
    nets = Patch(put={RANGE: NODE}, drop=("10.0.2.0-10.0.2.3",))
    assert moved(change(nets=nets), Plan()) == ["10.0.2.0-10.0.2.3", RANGE]


def test_all_move_with_another_whitelist_and_none_with_the_same() -> None:
    plan = Plan(hosts={"10.0.0.1": NODE}, nets={RANGE: NODE}, whitelist=LISTED)
    same = with_epoch(change(whitelist=WhitelistPlan(mark=MARK_DIRECT)), plan)
    assert same.whitelist == LISTED
    assert moved(same, plan) == []
    other = with_epoch(change(whitelist=WhitelistPlan(mark=NODE)), plan)
    assert other.whitelist is not None
    assert other.whitelist.epoch == LISTED.epoch + 1
    assert moved(other, plan) == ["10.0.0.1", RANGE]


@pytest.mark.parametrize(("epoch", "after"), [(1, 2), (MARK_EPOCHS - 1, 1)])
def test_epochs_begin_again_after_the_last(epoch: int, after: int) -> None:
    plan = Plan(whitelist=WhitelistPlan(mark=MARK_DIRECT, epoch=epoch))
    told = with_epoch(change(whitelist=WhitelistPlan(mark=NODE)), plan).whitelist
    assert told is not None
    assert told.epoch == after


def test_only_those_with_sockets_in_the_engine_are_looked_for() -> None:
    hosts = {"10.0.0.1": NODE, "10.0.0.2": MARK_DIRECT, "10.0.0.3": MARK_REJECT}
    clients = [*hosts, "10.0.0.4"]
    assert engine_served(clients, Plan(hosts=hosts)) == ["10.0.0.1", "10.0.0.4"]
    assert engine_served(clients, Plan(hosts=hosts, nets={RANGE: NODE})) == clients
    assert engine_served(clients, Plan(hosts=hosts, whitelist=LISTED)) == clients


@pytest.mark.parametrize(
    ("parts", "is_more"),
    [
        ({"hosts": Patch(put={"10.0.0.1": NODE})}, False),
        ({"nets": Patch(put={RANGE: NODE})}, True),
        ({"instances": Patch(drop=("node:1",))}, True),
        ({"whitelist": LISTED}, True),
    ],
)
def test_a_single_clients_change_is_told_from_more(parts: dict[str, Any], is_more: bool) -> None:
    assert is_more_than_hosts(change(**parts)) == is_more
