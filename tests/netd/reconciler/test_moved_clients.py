"""The clients whose connections end after the kernel sends clients elsewhere."""

from __future__ import annotations

import pytest

from egressd.model.plan import Plan
from egressd.netd.reconciler.moved_clients import MovedClients
from egressd.netd.reconciler.stale_flows import StaleFlows
from tests.support.nodes.instances import node_instance
from tests.support.stand_ins import UnexpectedKernel

HERE, GONE = 0x1000_0001, 0x1000_0002


async def test_flows_are_ended_after_a_lost_instance_but_not_a_dropped_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    served = {HERE, GONE}
    here, gone = node_instance(1, standby=True), node_instance(2, standby=True)
    plan = Plan(instances={each.key: each for each in (here, gone)})
    tidied = []

    class Kernel(UnexpectedKernel):
        def served(self) -> set[int]:
            return set(served)

    kernel = Kernel()

    moves = MovedClients(kernel, lambda: plan)
    monkeypatch.setattr(StaleFlows, "add", lambda _, networks: tidied.append(True))
    for _ in range(2):
        moves.follow_losses()
        assert not tidied
    served.remove(GONE)
    for _ in range(2):
        moves.follow_losses()
        assert tidied == [True]
    served.remove(HERE)
    del plan.instances[here.key]  # the change itself ends its clients' connections
    moves.follow_losses()
    assert tidied == [True]
