"""Refusals are reported from the kernel's counters, and for a while after."""

from __future__ import annotations

from egressd.model.messages import Reached
from egressd.netd.health.refused_sources import REACHED_MAX, TOLD_S, RefusedSources
from egressd.netd.kernel.refused import CONNECTIONS, SERVICE, STRANGERS, RefusedSource
from egressd.planner.bounds import Bounds
from egressd.planner.nft import Crowd, Greedy

BUSY = RefusedSource(CONNECTIONS, "10.0.0.7")
STRANGER = RefusedSource(STRANGERS, "203.0.113.9", 1080)


class Kernel:
    """Counts of refused packets."""

    def __init__(self) -> None:
        self.counted: dict[RefusedSource, int] = {}
        self.changes = 0
        self.refusals = RefusedSources(Bounds, self.changed, read=lambda _: dict(self.counted))

    def changed(self) -> None:
        self.changes += 1

    def told(self, now: float) -> list[str]:
        self.refusals.check(now)
        return [each.source for each in self.refusals.reached]


def test_a_refused_client_is_reported_during_and_for_a_while_after() -> None:
    kernel = Kernel()
    assert kernel.told(0.0) == []
    kernel.counted = {BUSY: 1}
    assert kernel.told(1.0) == ["10.0.0.7"]
    bound = Bounds().connections
    assert kernel.refusals.reached == (Reached(kind="connections", source="10.0.0.7", bound=bound),)
    kernel.counted = {}
    assert kernel.told(1.0 + TOLD_S / 2) == ["10.0.0.7"]
    assert kernel.told(1.0 + TOLD_S) == []
    assert kernel.changes == 2


def test_packets_are_counted_although_kernel_entries_expire() -> None:
    kernel = Kernel()
    for count in (5, 9, 2, 2):  # the third belongs to a new element
        kernel.counted = {BUSY: count}
        kernel.told(0.0)
    assert kernel.refusals.totals == {"connections": 5 + 4 + 2}
    kernel.counted = {}
    kernel.told(1.0)
    kernel.counted = {BUSY: 2}
    kernel.told(2.0)
    assert kernel.refusals.totals == {"connections": 13}


def test_callers_are_reported_with_the_service_they_call() -> None:
    kernel = Kernel()
    kernel.counted = {STRANGER: 1}
    assert kernel.told(1.0) == ["203.0.113.9"]
    assert kernel.refusals.reached[0].port == 1080


def test_clients_refused_by_netd_itself_are_reported() -> None:
    crowd = Crowd(frozenset({"203.0.113.9"}), is_full=True)
    greedy = [Greedy("10.0.0.7", "tcp"), Greedy("10.0.0.8", "udp", is_of_network=True)]
    refusals = RefusedSources(Bounds, Kernel().changed, lambda: greedy, lambda: crowd, lambda _: {})
    refusals.check(0.0)
    assert [(each.kind, each.source, each.bound) for each in refusals.reached] == [
        ("calls", "203.0.113.9", Bounds().callers),
        ("connections", "10.0.0.7", Bounds().connections),
        ("network_sessions", "10.0.0.8", Bounds().sessions_of_network),
        ("outside", "", Bounds().outside),
    ]
    assert not any(refusals.totals.values())


def test_the_number_of_reports_is_limited() -> None:
    kernel = Kernel()
    kernel.counted = {
        RefusedSource(CONNECTIONS, f"10.0.{n // 256}.{n % 256}"): 1 for n in range(5000)
    }
    kernel.counted[RefusedSource(SERVICE, port=1080)] = 1
    assert len(kernel.told(0.0)) == REACHED_MAX
