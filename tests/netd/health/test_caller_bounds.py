"""The clients of proxy services that have reached the bounds of connections."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv4Network

from hypothesis import given
from hypothesis import strategies as st

from egressd.netd.health.caller_bounds import crowd_of
from egressd.netd.kernel.sockets import CallerConnection
from egressd.planner.bounds import bounds_of
from egressd.planner.nft import Crowd

BOUNDS = bounds_of(1024)
LAN = IPv4Network("10.0.0.0/24")
PROXY = (IPv4Address("192.0.2.1"), 1080)


def calls(*sources: str) -> list[CallerConnection]:
    """Return a connection of each, the oldest first."""
    remotes = ((IPv4Address(source), 40_000 + n) for n, source in enumerate(sources))
    return [CallerConnection(PROXY, remote, 0, 0, b"%d" % n) for n, remote in enumerate(remotes)]


def crowd(callers: list[CallerConnection]) -> tuple[Crowd, list[CallerConnection]]:
    return crowd_of(callers, LAN.__contains__, BOUNDS)


def test_no_caller_is_busy_below_the_bounds() -> None:
    sources = ["10.0.0.7"] * (BOUNDS.callers - 1) + ["203.0.113.9"] * (BOUNDS.callers - 1)
    assert crowd(calls(*sources)) == (Crowd(), [])


def test_a_caller_at_its_bound_is_refused() -> None:
    sources = ["203.0.113.9"] * BOUNDS.callers + ["203.0.113.10"]
    assert crowd(calls(*sources)) == (Crowd(frozenset({"203.0.113.9"})), [])


def test_the_newest_connections_beyond_a_bound_are_surplus() -> None:
    callers = calls(*["10.0.0.7"] * (BOUNDS.callers + 5), "203.0.113.9")
    busy, surplus = crowd(callers)
    assert busy == Crowd(frozenset({"10.0.0.7"}))
    assert surplus == callers[BOUNDS.callers : -1]


def test_outside_callers_share_a_bound_that_leaves_room_for_lans() -> None:
    many = [f"203.0.113.{n % 200}" for n in range(BOUNDS.outside + 5)]
    callers = calls(*many, *["10.0.0.7"] * (BOUNDS.callers - 1))
    busy, surplus = crowd(callers)
    assert busy == Crowd(is_full=True)
    assert surplus == callers[BOUNDS.outside : BOUNDS.outside + 5]


@given(
    st.lists(st.sampled_from(["10.0.0.7", "10.0.0.8", "203.0.113.9", "203.0.113.10"]), max_size=400)
)
def test_connections_without_the_surplus_are_within_the_bounds(sources: list[str]) -> None:
    callers = calls(*sources)
    busy, surplus = crowd(callers)
    left = [each for each in callers if each not in surplus]
    assert crowd(left) == (busy, [])
    outside = [each for each in left if each.remote[0] not in LAN]
    assert len(outside) <= BOUNDS.outside
    for each in surplus:
        assert f"{each.remote[0]}" in busy.callers or (each.remote[0] not in LAN and busy.is_full)
