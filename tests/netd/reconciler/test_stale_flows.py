"""The tracked flows that a client may have: all others are removed after a change."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from ipaddress import IPv4Address
from socket import IPPROTO_ICMP, IPPROTO_TCP, IPPROTO_UDP

import pytest
from msgspec import structs

from egressd.model.plan import Egress, GlobalPolicy, Plan, WhitelistPlan
from egressd.netd.kernel.address_ranges import RangeMap, Ranges
from egressd.netd.kernel.conntrack import TrackedFlow
from egressd.netd.reconciler.stale_flows import StaleFlows, may_have
from egressd.planner.registry import (
    MARK_ASKED_DIRECTLY,
    MARK_DIRECT,
    MARK_REJECT,
    asker_mark,
    asker_number,
    egress_mark,
    flow_mark,
    inbound_number,
    node_mark,
)
from egressd.planner.topology import interface_mark
from tests.support.netns import eventually

EPOCH = 7
NODE, WAN = node_mark(1), egress_mark(2)
FAR, LISTED_FAR = (IPv4Address(text).packed for text in ("192.0.2.9", "203.0.113.9"))
SNIFFER = 0x1400_0000
PLAN = Plan(
    policy=GlobalPolicy(unmanaged=WAN),
    whitelist=WhitelistPlan(
        mark=MARK_DIRECT,
        ranges=("203.0.113.0-203.0.113.255",),
        sniffers={WAN: SNIFFER},
        epoch=EPOCH,
        tcp_ports=(80, 443),
        udp_ports=(443,),
    ),
    hosts={"10.0.0.1": NODE, "10.0.0.2": WAN},
    nets={"10.0.1.0-10.0.1.255": WAN},
)
LISTED = flow_mark(MARK_DIRECT, EPOCH)
RANGES = RangeMap(PLAN.nets)
LANS = Ranges(["10.0.0.0/16"])
OWN_ADDRESSES = [IPv4Address("192.0.2.2")]


OWN = {0, flow_mark(WAN, EPOCH)}
DIRECTLY = flow_mark(MARK_ASKED_DIRECTLY, EPOCH)


@pytest.mark.parametrize(
    ("client", "far", "protocol", "port", "marks"),
    [
        ("10.0.0.1", FAR, IPPROTO_UDP, 7, {0, NODE}),
        ("10.0.0.1", FAR, IPPROTO_TCP, 443, {0, NODE}),
        ("10.0.0.1", FAR, IPPROTO_UDP, 53, {0, NODE}),
        ("10.0.0.1", LISTED_FAR, IPPROTO_UDP, 7, {0, LISTED}),
        ("10.0.0.2", FAR, IPPROTO_UDP, 7, OWN),
        ("10.0.1.77", FAR, IPPROTO_ICMP, 0, OWN),
        ("10.0.0.2", FAR, IPPROTO_TCP, 443, {0, SNIFFER}),
        ("10.0.0.2", FAR, IPPROTO_TCP, 53, {*OWN, SNIFFER}),
        ("10.0.0.2", LISTED_FAR, IPPROTO_ICMP, 0, {0, LISTED}),
        ("10.0.0.2", LISTED_FAR, IPPROTO_TCP, 80, {0, LISTED}),
        ("10.0.2.1", FAR, IPPROTO_UDP, 7, {0, WAN}),
        ("10.0.2.1", LISTED_FAR, IPPROTO_UDP, 7, {0, WAN}),
        ("127.0.0.1", FAR, IPPROTO_UDP, 443, {0, LISTED}),
    ],
)
def test_flows_that_would_begin_alike_now_are_kept(
    client: str, far: bytes, protocol: int, port: int, marks: set[int]
) -> None:
    every = {0, NODE, WAN, MARK_DIRECT, SNIFFER, node_mark(2), egress_mark(3)}
    every |= {flow_mark(mark, epoch) for mark in every for epoch in (EPOCH - 1, EPOCH)} | {DIRECTLY}
    packed = IPv4Address(client).packed
    is_current = may_have(PLAN, RANGES, {}, (), OWN_ADDRESSES)
    assert {
        m for m in every if is_current(packed, TrackedFlow(m, far, protocol, port, True))
    } == marks


def test_questions_that_do_not_use_their_line_stay_with_its_clients_alone() -> None:
    """Past fault: those of clients without a rule were removed, so that no answer reached them, and
    those of clients that had left the line stayed, where the connmark check drops what they send.
    """
    line = interface_mark("l2tp_1", 5)
    plan = structs.replace(
        PLAN,
        policy=GlobalPolicy(unmanaged=line),
        hosts={"10.0.0.1": NODE, "10.0.0.2": WAN, "10.0.0.3": line},
        egresses={"l2tp_1": Egress(number=5, is_asked_directly=True)},
    )
    is_current = may_have(plan, RANGES, {}, (), OWN_ADDRESSES)

    def marks(client: str, port: int) -> set[int]:
        packed = IPv4Address(client).packed
        every = {MARK_ASKED_DIRECTLY, DIRECTLY}
        return {m for m in every if is_current(packed, TrackedFlow(m, FAR, IPPROTO_UDP, port))}

    assert marks("10.0.0.3", 53) == {DIRECTLY}
    assert marks("10.0.2.1", 53) == {MARK_ASKED_DIRECTLY}
    assert not any(marks(client, 54) for client in ("10.0.0.3", "10.0.2.1"))
    assert not any(marks(client, 53) for client in ("10.0.0.1", "10.0.0.2"))


def test_inbound_flows_of_wans_are_kept_whatever_the_rules() -> None:
    is_current = may_have(PLAN, RANGES, {}, (), OWN_ADDRESSES)
    for client in ("10.0.0.1", "10.0.0.2", "10.0.2.1"):
        assert is_current(IPv4Address(client).packed, TrackedFlow(egress_mark(inbound_number(3))))


def test_a_closed_flow_stays_and_is_refused() -> None:
    """One that its client has opened ends if all clients are stopped: no port forward would lead
    its far end's next packet to the client.
    """
    opened = TrackedFlow(MARK_REJECT, FAR, IPPROTO_TCP, 8022)
    inbound = opened._replace(is_inbound=True)
    stopped = structs.replace(PLAN, policy=structs.replace(PLAN.policy, stopped=True))
    for client in ("10.0.0.1", "10.0.0.2", "10.0.2.1"):
        packed = IPv4Address(client).packed
        for flow in (opened, inbound):
            assert may_have(PLAN, RANGES, {}, (), OWN_ADDRESSES)(packed, flow)
            is_kept = may_have(stopped, RANGES, {}, (), OWN_ADDRESSES)(packed, flow)
            assert is_kept == flow.is_inbound


def test_flows_of_the_engine_have_no_epoch() -> None:
    assert flow_mark(NODE, EPOCH) == NODE
    assert flow_mark(WAN, EPOCH) != WAN != flow_mark(WAN, EPOCH + 1)


def test_with_local_names_dns_flows_of_routed_clients_use_an_instance() -> None:
    policy = structs.replace(PLAN.policy, local_resolvers=("10.0.0.2",))
    is_current = may_have(structs.replace(PLAN, policy=policy), RANGES, {}, (), OWN_ADDRESSES)

    def marks(client: str) -> set[int]:
        every = {0, NODE, *OWN, DIRECTLY, asker_mark(0), asker_mark(asker_number(WAN))}
        packed = IPv4Address(client).packed
        return {m for m in every if is_current(packed, TrackedFlow(m, FAR, IPPROTO_UDP, 53, True))}

    assert marks("10.0.1.77") == {0, asker_mark(asker_number(WAN))}
    assert marks("10.0.0.1") == {0, NODE}
    assert marks("10.0.0.2") >= OWN, "a resolver asks others as it likes"


@pytest.mark.parametrize("client", ["10.0.0.1", "10.0.0.2"])
def test_sniffed_udp_has_a_translated_source(client: str) -> None:
    mark = {"10.0.0.1": NODE, "10.0.0.2": SNIFFER}[client]
    other = {"10.0.0.1": NODE, "10.0.0.2": flow_mark(WAN, EPOCH)}[client]
    packed = IPv4Address(client).packed
    is_current = may_have(PLAN, RANGES, {}, (), OWN_ADDRESSES)
    assert not is_current(packed, TrackedFlow(mark, FAR, IPPROTO_UDP, 443))
    assert is_current(packed, TrackedFlow(mark, FAR, IPPROTO_UDP, 443, is_source_translated=True))
    assert is_current(packed, TrackedFlow(mark, FAR, IPPROTO_TCP, 443))
    assert is_current(packed, TrackedFlow(other, FAR, IPPROTO_UDP, 5000))
    assert is_current(packed, TrackedFlow(LISTED, LISTED_FAR, IPPROTO_UDP, 443))


@pytest.mark.parametrize(
    ("client", "far", "marks"),
    [
        ("10.0.0.1", FAR, {0, NODE}),  # a node's client may receive from hosts it has not contacted
        ("10.0.0.1", LISTED_FAR, set()),
        ("10.0.0.2", FAR, set()),
        ("10.0.1.77", FAR, set()),
        ("10.0.2.1", FAR, set()),
        ("10.0.0.2", OWN_ADDRESSES[0].packed, OWN),  # the router's own
    ],
)
def test_a_flow_begun_by_an_instance_ends_if_the_kernel_routes_its_client(
    client: str, far: bytes, marks: set[int]
) -> None:
    every = {0, NODE, WAN, MARK_DIRECT, LISTED, flow_mark(WAN, EPOCH)}
    is_current = may_have(PLAN, RANGES, {}, (), OWN_ADDRESSES)
    packed = IPv4Address(client).packed
    backwards = {m: TrackedFlow(m, far, IPPROTO_UDP, 7, is_backwards=True) for m in every}
    assert {m for m, flow in backwards.items() if is_current(packed, flow)} == marks


def test_a_flow_begun_by_an_instance_ends_on_an_open_device() -> None:
    client, flow = (
        IPv4Address("10.0.0.1").packed,
        TrackedFlow(0, FAR, IPPROTO_UDP, 7, is_backwards=True),
    )
    opened = structs.replace(PLAN, policy=GlobalPolicy(opened=True, unmanaged=MARK_DIRECT))
    assert may_have(PLAN, RANGES, {}, (), OWN_ADDRESSES)(client, flow)
    assert not may_have(opened, RANGES, {}, (), OWN_ADDRESSES)(client, flow)


def test_a_flow_is_judged_as_fast_among_thousands_of_ranges() -> None:
    def seconds(count: int) -> float:
        names = [f"10.{number >> 8}.{number & 255}" for number in range(count)]
        nets = {f"{name}.0-{name}.255": WAN for name in names}
        plan = Plan(nets=nets, whitelist=WhitelistPlan(epoch=1))
        is_current = may_have(plan, RangeMap(plan.nets), {}, (), OWN_ADDRESSES)
        client, flow = IPv4Address(f"{names[-1]}.7").packed, TrackedFlow(flow_mark(WAN, 1))
        began = time.perf_counter()
        assert all(is_current(client, flow) for _ in range(500))
        return time.perf_counter() - began

    few, thousands = (min(seconds(count) for _ in range(5)) for count in (4, 4096))
    assert thousands < 20 * few


async def test_a_clean_up_with_an_outdated_plan_stops_and_is_repeated(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Past fault: a connection that began just after a save of the whitelist or of a CIDR rule
    could be ended by the clean-up of the save before, which judged by its own plan (found by
    reading).
    """
    client, flow = IPv4Address("10.0.0.1").packed, TrackedFlow(NODE, FAR, IPPROTO_UDP, 7)
    walks: list[list[bool]] = []
    stale_flows: StaleFlows

    def delete_stale(
        clients: set[str],
        _: Ranges,
        is_current: Callable[[bytes, TrackedFlow], bool],
        *_more: object,
    ) -> None:
        assert clients == {"10.0.0.1"}
        before = is_current(client, flow)
        if not walks:
            stale_flows.invalidate()
        walks.append([before, is_current(client, flow)])

    monkeypatch.setattr("egressd.netd.reconciler.stale_flows.conntrack.delete_stale", delete_stale)
    stale_flows = StaleFlows(lambda: lambda _client, _flow: False, lambda: LANS, lambda _: True)
    stale_flows.add(["10.0.0.1"])
    await eventually(lambda: len(walks) == 2)
    await asyncio.sleep(0.1)
    await stale_flows.close()
    assert walks == [[False, True], [False, False]]


async def test_a_failed_clean_up_is_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[set[str]] = []

    def delete_stale(clients: set[str], *_: object) -> None:
        asked.append(set(clients))
        if len(asked) == 1:
            raise OSError("busy")

    monkeypatch.setattr("egressd.netd.reconciler.stale_flows.conntrack.delete_stale", delete_stale)
    monkeypatch.setattr("egressd.netd.kernel.debounce._RETRY_S", 0.0)
    stale_flows = StaleFlows(
        lambda: may_have(PLAN, RANGES, {}, (), OWN_ADDRESSES), lambda: LANS, lambda _: True
    )
    stale_flows.add(["10.0.0.1"])
    await eventually(lambda: len(asked) == 2)
    await stale_flows.close()
    assert asked == [{"10.0.0.1"}, {"10.0.0.1"}]
