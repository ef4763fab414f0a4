"""The rate at which secrets can be guessed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from egressd.console.throttle import (
    ACCOUNTS_MAX,
    ADDRESS,
    DEVICE,
    EVERYBODY,
    FORGET_S,
    NETWORK,
    TOLD_S,
    GuessThrottle,
    Patience,
)
from egressd.model.source import HERE, Source, source_of

pytestmark = pytest.mark.slow

HOST, NEIGHBOUR, ELSEWHERE = map(source_of, ("10.0.0.5", "10.0.0.6", "192.168.8.5"))
HOUR = 3600


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def source(number: int) -> Source:
    """One of 65,536 addresses, each of a network of its own."""
    return source_of(f"10.{number // 256}.{number % 256}.1")


def most_guesses(patience: Patience, seconds: int) -> float:
    """The free ones, those whose delays grow, and those that wait longest."""
    growing = 0
    while patience.first_s * 2**growing < patience.most_s:
        growing += 1
    return patience.free + growing + 1 + seconds / patience.most_s


def guesses_in(throttle: GuessThrottle, clock: Clock, sources: list[Source], seconds: int) -> int:
    """Return the guesses that are heard if each of `sources` guesses once a second."""
    heard = 0
    for _ in range(seconds):
        heard += sum(throttle.charge(it) == 0 for it in sources)
        clock.now += 1
    return heard


def test_the_wait_after_the_free_guesses_grows() -> None:
    clock = Clock()
    throttle = GuessThrottle(clock)
    assert [throttle.charge(HOST) for _ in range(ADDRESS.free)] == [0.0] * ADDRESS.free
    waits = []
    for _ in range(8):
        waits.append(throttle.charge(HOST))
        clock.now += waits[-1]
        assert throttle.charge(HOST) == 0
    assert waits[0] == ADDRESS.first_s
    assert waits == sorted(waits)
    assert waits[-1] == ADDRESS.most_s


def test_the_wait_includes_the_time_that_a_guess_takes() -> None:
    clock = Clock()
    throttle = GuessThrottle(clock)
    for _ in range(ADDRESS.free):
        assert throttle.charge(HOST) == 0.0
        clock.now += 0.5  # a password is looked at for some tenths of a second
    assert throttle.charge(HOST) == pytest.approx(ADDRESS.first_s - 0.5)


def test_an_address_is_limited_to_a_few_guesses_an_hour() -> None:
    clock = Clock()
    throttle = GuessThrottle(clock)
    heard = guesses_in(throttle, clock, [HOST], 12 * HOUR)
    assert ADDRESS.free < heard <= most_guesses(ADDRESS, 12 * HOUR)


@pytest.mark.parametrize("network", ["10.0.0.{}", "fd00::{:x}"])
def test_addresses_of_one_network_share_a_limit(network: str) -> None:
    # A host of a LAN took one address after the other: 38 guesses a second.
    clock = Clock()
    throttle = GuessThrottle(clock)
    hosts = [source_of(network.format(number)) for number in range(1, 251)]
    heard = guesses_in(throttle, clock, hosts, HOUR)
    assert NETWORK.free < heard <= most_guesses(NETWORK, HOUR)
    assert throttle.charge(ELSEWHERE) == 0


def test_all_networks_share_the_limit_of_the_account() -> None:
    clock = Clock()
    throttle = GuessThrottle(clock)
    heard = guesses_in(throttle, clock, [source(number) for number in range(1000)], 600)
    assert EVERYBODY.free < heard <= most_guesses(EVERYBODY, 600)
    assert 0 < throttle.charge(ELSEWHERE) <= EVERYBODY.most_s


def test_known_browsers_and_this_machine_have_their_own_limits() -> None:
    throttle = GuessThrottle(Clock())
    for number in range(1000):
        throttle.charge(source(number))
    assert throttle.charge(source(1)) > 0
    assert throttle.charge(source(1), "device a") == 0
    assert throttle.charge(HERE) == 0
    # What known ones guess is counted, too.
    heard = [throttle.charge(source(number), "device a") for number in range(DEVICE.free)]
    assert heard == [0.0] * (DEVICE.free - 1) + [DEVICE.first_s]
    assert throttle.charge(source(1), "device b") == 0


def test_a_guess_after_the_announced_wait_is_accepted() -> None:
    clock = Clock()
    throttle = GuessThrottle(clock)
    for _ in range(50):
        wait = throttle.charge(HOST)
        if wait:
            clock.now += wait - 0.5
            assert throttle.charge(HOST) > 0
            clock.now += 0.5
            assert throttle.charge(HOST) == 0


def test_the_count_decays_with_time() -> None:
    clock = Clock()
    throttle = GuessThrottle(clock)
    for _ in range(ADDRESS.free):
        throttle.charge(HOST)
    clock.now += ADDRESS.first_s + ADDRESS.free * FORGET_S
    assert [throttle.charge(HOST) for _ in range(ADDRESS.free)] == [0.0] * ADDRESS.free


def test_a_right_guess_resets_only_the_count_of_its_address() -> None:
    throttle = GuessThrottle(Clock())
    for _ in range(10 * EVERYBODY.free):  # a program that logs in time and again
        assert throttle.charge(HOST) == 0
        throttle.forgive(HOST)
    for number in range(NETWORK.free):
        assert throttle.charge(source_of(f"10.0.0.{number}")) == 0
    throttle.forgive(HOST)
    assert throttle.charge(HOST) == 0
    assert throttle.charge(HOST) == throttle.charge(NEIGHBOUR) == NETWORK.first_s


@given(st.lists(st.tuples(st.integers(1, 3), st.floats(0, 400)), max_size=100))
def test_no_guess_is_accepted_before_the_announced_wait(tries: list[tuple[int, float]]) -> None:
    clock = Clock()
    throttle = GuessThrottle(clock)
    told: dict[int, float] = {}
    for number, pause in tries:
        clock.now += pause
        wait = throttle.charge(source_of(f"10.0.0.{number}"))
        assert (wait > 0) >= (clock.now < told.get(number, 0.0) - 1e-6)
        if wait:
            told[number] = clock.now + wait


def test_refused_networks_are_reported_for_a_minute() -> None:
    clock = Clock()
    throttle = GuessThrottle(clock)
    for _ in range(ADDRESS.free):
        throttle.charge(HOST)
    assert throttle.refused_networks() == []
    throttle.charge(HOST)
    assert throttle.refused_networks() == ["10.0.0.0/24"]
    assert throttle.failures == {"wrong": 0, "refused": 1}
    clock.now += TOLD_S
    assert throttle.refused_networks() == []


def test_the_number_of_remembered_sources_is_limited() -> None:
    clock = Clock()
    throttle = GuessThrottle(clock)
    for number in range(ACCOUNTS_MAX * 2):
        throttle.charge(source(number), f"device {number}")
        clock.now += 60
        throttle.charge(source(number))
        throttle.charge(source(number))
    assert len(throttle._tallies) <= ACCOUNTS_MAX
    assert len(throttle._refused_at) <= ACCOUNTS_MAX
