from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from egressd.api.throttle import ADDRESS, ALL, DEBT_MAX_S, NETWORK, Throttle
from egressd.model.rate_limit import ACCOUNTS_MAX
from egressd.model.source import Source, source_of

HOST, NEIGHBOUR, ELSEWHERE = map(source_of, ("10.0.0.5", "10.0.0.6", "10.0.1.5"))


def source(number: int) -> Source:
    """Return one of 65,536 addresses, each of a network of its own."""
    return source_of(f"10.{number // 256}.{number % 256}.1")


def test_the_first_wrong_tokens_are_answered_at_once_and_others_delayed() -> None:
    throttle = Throttle()
    assert [throttle.wrong(HOST, 0.0) for _ in range(ADDRESS.free)] == [0.0] * ADDRESS.free
    assert throttle.wrong(HOST, 0.0) == pytest.approx(ADDRESS.interval_s)
    assert throttle.wrong(HOST, 0.0) == pytest.approx(2 * ADDRESS.interval_s)
    assert throttle.wrong(NEIGHBOUR, 0.0) == 0.0


def test_a_flood_from_one_address_locks_out_no_other_address() -> None:
    throttle = Throttle()
    while throttle.may_wait(HOST, 0.0):
        throttle.wrong(HOST, 0.0)
    assert throttle.may_wait(ELSEWHERE, 0.0)
    assert throttle.may_wait(NEIGHBOUR, 0.0)
    assert not throttle.may_wait(HOST, 0.0)
    assert throttle.may_wait(HOST, ADDRESS.interval_s + 0.001)


@pytest.mark.parametrize("network", ["10.0.0.{}", "fd00::{:x}"])
def test_addresses_of_one_network_share_a_rate(network: str) -> None:
    # A host of a LAN sent ten from each address it took, and 20 a second after them.
    throttle = Throttle()
    heard = 0
    for number in range(1, 251):
        a_host = source_of(network.format(number))
        while throttle.may_wait(a_host, 0.0):
            throttle.wrong(a_host, 0.0)
            heard += 1
    assert heard == NETWORK.free + DEBT_MAX_S / NETWORK.interval_s
    assert throttle.may_wait(ELSEWHERE, 0.0)


def test_a_source_is_not_delayed_once_its_debt_has_decayed() -> None:
    throttle = Throttle()
    for _ in range(20):
        throttle.wrong(HOST, 0.0)
    assert throttle.wrong(HOST, 20 * ADDRESS.interval_s) == 0.0


def test_all_networks_share_a_rate_that_leaves_room_for_new_ones() -> None:
    throttle = Throttle()
    for number in range(ALL.free + 1):
        throttle.wrong(source(number), 0.0)
    assert not throttle.may_wait(source(7), 0.0)
    assert throttle.may_wait(source(5000), 0.0)
    assert throttle.may_wait(source(7), 2 * ALL.interval_s)


@given(st.lists(st.tuples(st.integers(1, 3), st.floats(0, 0.2)), max_size=200))
def test_no_address_exceeds_its_rate(tries: list[tuple[int, float]]) -> None:
    throttle, now = Throttle(), 0.0
    answered: dict[int, list[float]] = {}
    for number, pause in tries:
        now += pause
        if throttle.may_wait(source_of(f"10.0.0.{number}"), now):
            delay = throttle.wrong(source_of(f"10.0.0.{number}"), now)
            assert delay <= DEBT_MAX_S + ADDRESS.interval_s + 1e-6
            answered.setdefault(number, []).append(now + delay)
    for times in answered.values():
        for first, later in zip(times, times[ADDRESS.free + 1 :], strict=False):
            assert later - first >= ADDRESS.interval_s - 1e-6


@pytest.mark.slow
def test_the_memory_for_sources_is_limited() -> None:
    throttle = Throttle()
    for number in range(ACCOUNTS_MAX + 100):
        throttle.wrong(source(number), 0.0)
    assert len(throttle._gcra) <= ACCOUNTS_MAX
