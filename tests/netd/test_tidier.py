"""Which tracked flows a client may have: all others are removed after a change."""

from __future__ import annotations

from ipaddress import IPv4Address

import pytest

from egressd.model.plan import Floor, Plan, WhitelistPlan
from egressd.netd.tidier import may_have
from egressd.planner.registry import MARK_DIRECT, egress_mark, flow_mark, node_mark

EPOCH = 7
NODE, WAN = node_mark(1), egress_mark(2)
SNIFFER = 0x1400_0000
PLAN = Plan(
    floor=Floor(unmanaged=WAN),
    whitelist=WhitelistPlan(mark=MARK_DIRECT, sniffers={WAN: SNIFFER}, epoch=EPOCH),
    hosts={"10.0.0.1": NODE, "10.0.0.2": WAN},
    nets={"10.0.1.0-10.0.1.255": WAN},
)
LISTED = flow_mark(MARK_DIRECT, EPOCH)


@pytest.mark.parametrize(
    ("client", "marks"),
    [
        ("10.0.0.1", {0, NODE, LISTED}),
        ("10.0.0.2", {0, flow_mark(WAN, EPOCH), SNIFFER, LISTED}),
        ("10.0.1.77", {0, flow_mark(WAN, EPOCH), SNIFFER, LISTED}),
        ("10.0.2.1", {0, WAN}),
    ],
)
def test_flows_of_the_target_and_of_this_whitelist_stay(client: str, marks: set[int]) -> None:
    every = {0, NODE, WAN, MARK_DIRECT, SNIFFER, node_mark(2), egress_mark(3)}
    every |= {flow_mark(mark, epoch) for mark in every for epoch in (EPOCH - 1, EPOCH)}
    packed = IPv4Address(client).packed
    assert {mark for mark in every if may_have(PLAN, {}, packed, mark)} == marks


def test_flows_of_the_engine_have_no_epoch() -> None:
    assert flow_mark(NODE, EPOCH) == NODE
    assert flow_mark(WAN, EPOCH) != WAN != flow_mark(WAN, EPOCH + 1)
