"""The effects of a change, all known before anything is touched."""

from __future__ import annotations

from typing import Any

import pytest

from egressd.model.plan import Change, Egress, GlobalPolicy, Limit, Patch, Plan, WhitelistPlan
from egressd.netd.engine.slot import Running
from egressd.netd.kernel.address_ranges import RangeMap
from egressd.netd.reconciler.moved_clients import ClientMove
from egressd.netd.reconciler.step import Scope, StartResult, Step, step_of
from egressd.planner.nft import HostUpdate
from egressd.planner.registry import MARK_DIRECT, node_mark
from tests.support.nodes.instances import node_instance

NODE = node_mark(1)
RANGE = "10.0.1.0-10.0.1.255"
PLAN = Plan(revision=1, hosts={"10.0.0.1": MARK_DIRECT}, instances={"node:2": node_instance(2)})
PORTS = {"node:2": 20_002, "node:3": 20_003}


def running(key: str, port: int) -> Running:
    return Running(key=key, digest="", port=port, worker=1, pid=1, number=port, started=1)


def step(
    start: StartResult = StartResult({}, (), {}),  # noqa: B008 (frozen)
    *,
    is_regrouped: bool = False,
    is_local: bool = False,
    **parts: Any,
) -> Step:
    return step_of(
        Change(base=1, revision=2, **parts),
        PLAN,
        start,
        ports=PORTS,
        move=ClientMove(RangeMap({}), [], []),
        hosts=HostUpdate(),
        is_regrouped=is_regrouped,
        is_local=is_local,
    )


HOSTS = Patch(put={"10.0.0.1": NODE})
LIMIT = Limit(number=1, upload_kbps=100, download_kbps=100)


@pytest.mark.parametrize(
    ("parts", "scope"),
    [
        ({"hosts": HOSTS}, Scope.HOSTS),
        ({"limits": Patch(put={"10.0.0.1": LIMIT})}, Scope.HOSTS),
        ({"hosts": HOSTS, "is_local": True}, Scope.SETS),
        ({"hosts": HOSTS, "is_regrouped": True}, Scope.SETS),
        ({"nets": Patch(put={RANGE: NODE})}, Scope.SETS),
        ({"instances": Patch(drop=("node:2",))}, Scope.SETS),
        ({"whitelist": WhitelistPlan(mark=MARK_DIRECT)}, Scope.SETS),
        ({"hosts": HOSTS, "policy": GlobalPolicy(stopped=True)}, Scope.TABLE),
    ],
)
def test_a_step_changes_no_more_of_the_table_than_it_must(
    parts: dict[str, Any], scope: Scope
) -> None:
    assert step(**parts).scope == scope


def test_a_step_of_hosts_alone_leaves_routes_and_judgement() -> None:
    found = step(hosts=HOSTS)
    assert not found.alters_routes
    assert not found.alters_judgement
    assert found.hosts_touched == {"10.0.0.1"}
    assert found.undo.hosts == Patch(put={"10.0.0.1": MARK_DIRECT})


@pytest.mark.parametrize(
    ("parts", "touches"),
    [
        ({"hosts": HOSTS}, False),
        ({"limits": Patch(drop=("10.0.0.1",))}, False),
        ({"limits": Patch(drop=("10.0.0.0/24",))}, True),
        ({"nets": Patch(put={"10.0.0.0-10.0.0.255": MARK_DIRECT})}, True),
    ],
)
def test_a_step_of_cidr_rules_or_their_limits_touches_networks(
    parts: dict[str, Any], *, touches: bool
) -> None:
    assert step(**parts).touches_networks == touches


@pytest.mark.parametrize(
    "parts",
    [
        {"egresses": Patch(put={"wan1": Egress(number=1)})},
        {"policy": GlobalPolicy()},
        {"hosts": HOSTS, "is_local": True},
    ],
)
def test_a_step_alters_the_routes_of_egresses_and_local_clients(parts: dict[str, Any]) -> None:
    assert step(**parts).alters_routes


def test_ports_after_a_step_are_those_of_what_then_serves() -> None:
    """A predecessor with another configuration must not serve for an instance that failed."""
    start = StartResult({"node:4": running("node:4", 20_004)}, {"node:3"}, {})
    found = step(start, instances=Patch(drop=("node:2",)))
    assert found.ports == {"node:4": 20_004}
    assert found.gone == {"node:2", "node:3"}
    assert found.ended_services == {"node:2", "node:3", "node:4"}
