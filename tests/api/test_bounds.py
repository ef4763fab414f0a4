"""The connections that may exist, and those that are ended to make room."""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, generate_latest

from egressd.api.bounds import (
    FRESH_S,
    KNOWN_S,
    LIMITS,
    ROOT,
    CallBounds,
    CallerShare,
    CallLimits,
    HeldConnection,
    Stage,
)
from egressd.api.metrics import of_connections
from egressd.model.source import HERE, Source, local_user, source_of

SMALL: Final = CallLimits(address=3, network=6, shares=(10, 14, 16, 18))


class World:
    """Connections under a clock that a test sets."""

    def __init__(self, limits: CallLimits = SMALL) -> None:
        self.now = 1000.0
        self.bounds = CallBounds(limits, lambda: self.now)
        self.ended: list[HeldConnection] = []

    def open(self, address: str | Source, stage: Stage = Stage.WORKING) -> HeldConnection | None:
        source = source_of(address) if isinstance(address, str) else address
        held = self.bounds.admit(source, lambda: None)
        if held is not None:
            held.end = lambda: self.ended.append(held)
            self.bounds.enter(held, stage)
        return held

    def fill(
        self, addresses: str, count: int, stage: Stage = Stage.WORKING
    ) -> list[HeldConnection]:
        """Open up to `count` connections of each address that ``10.0.{}.1`` stands for; return
        those that were admitted.
        """
        opened = [self.open(addresses.format(n), stage) for n in range(256) for _ in range(count)]
        return [held for held in opened if held is not None]

    @property
    def total(self) -> int:
        return sum(self.bounds.count(share) for share in CallerShare)


@pytest.mark.parametrize(
    ("address", "source"),
    [
        ("192.0.2.7", Source("192.0.2.7", "192.0.2.0/24")),
        ("::ffff:192.0.2.7", Source("192.0.2.7", "192.0.2.0/24")),
        ("2001:db8:1:2:3:4:5:6", Source("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64")),
        ("fe80::1%lan0", Source("fe80::1", "fe80::/64")),
        ("127.0.0.1", HERE),
        ("127.9.9.9", HERE),
        ("::1", HERE),
        ("::ffff:127.0.0.1", HERE),
        ("local", HERE),
    ],
)
def test_requests_have_a_source_and_its_network(address: str, source: Source) -> None:
    assert source_of(address) == source


def test_an_address_and_a_network_have_limits() -> None:
    world = World()
    assert len(world.fill("10.0.0.5", 1)) == 3
    assert len(world.fill("10.0.0.{}", 1)) == 3
    assert world.open("10.0.1.5") is not None
    assert (world.bounds.refused["address"], world.bounds.refused["network"]) == (254, 252)
    assert world.bounds.ended.total() == 0


def test_strangers_leave_the_connections_reserved_for_others() -> None:
    # Found by an attack: nine addresses with 256 connections each had shut out all other clients.
    world = World()
    assert len(world.fill("10.0.{}.5", 3)) == SMALL.shares[CallerShare.STRANGERS]
    assert world.open("10.9.9.9") is None
    assert world.open(HERE) is not None
    assert world.open(ROOT) is not None


def test_the_real_limits_allow_nine_addresses_with_256_connections_each() -> None:
    world = World(LIMITS)
    for number in range(1, 10):
        for _ in range(256):
            world.open(f"10.0.0.{number}")
    assert world.total == LIMITS.network
    for source in ("10.0.1.1", "127.0.0.1", ROOT, local_user(1000)):
        assert world.open(source) is not None


@pytest.mark.parametrize("fits", [False, True])
def test_an_authenticated_address_is_known_for_ten_minutes(fits: bool) -> None:
    world = World()
    (first, *_) = world.fill("10.0.0.5", 1)
    world.bounds.vouch(first)
    assert (world.bounds.count(CallerShare.STRANGERS), world.bounds.count(CallerShare.KNOWN)) == (
        0,
        3,
    )
    world.bounds.release(first)
    world.fill("10.0.{}.6", 3)
    world.now += KNOWN_S + (-1 if fits else 1)
    assert (world.open("10.0.0.5") is not None) is fits
    assert world.open("10.0.9.9") is None


def test_connections_of_an_authenticated_address_leave_its_networks_count() -> None:
    world = World()
    mine = world.fill("10.0.0.5", 1)
    others = world.fill("10.0.0.6", 1)
    assert len(mine) + len(others) == 6
    world.bounds.vouch(mine[0])
    assert len(world.fill("10.0.0.7", 1)) == 3
    assert world.open("10.0.0.8") is None
    for held in (*mine, *others):
        world.bounds.release(held)
        world.bounds.release(held)
    assert world.total == 3
    assert world.open("10.0.0.8") is not None


def test_authenticated_addresses_leave_room_for_this_machine_and_root() -> None:
    world = World()
    for number in range(9):
        held = world.open(f"10.0.{number}.5")
        if held is not None:
            world.bounds.vouch(held)
            world.fill(f"10.0.{number}.5", 1)
    assert world.total == SMALL.shares[CallerShare.KNOWN]
    for uid in range(1000, 1009):
        world.open(local_user(uid))
    assert world.total == SMALL.shares[CallerShare.LOCAL]
    assert world.open(ROOT) is not None
    assert world.open(ROOT) is not None
    assert world.open(ROOT) is None


def test_all_loopback_addresses_count_as_one() -> None:
    world = World()
    assert len(world.fill("127.0.0.{}", 1)) == SMALL.address
    assert world.open("::1") is None
    assert world.open(local_user(1000)) is not None


def test_the_longest_idle_connection_is_ended_and_a_busy_one_never() -> None:
    world = World()
    stages = (Stage.WORKING, Stage.TAKING, Stage.SENDING, *[Stage.SILENT] * 3)
    opened = []
    for number, stage in enumerate(stages):
        opened.append(world.open(f"10.0.0.{number}", stage))
        world.now += FRESH_S
    for expected in (3, 4, 5, 2, 1):
        assert world.open(f"10.0.0.{90 + expected}") is not None
        assert world.ended.pop() is opened[expected]
    assert world.open("10.0.0.99") is None
    assert world.ended == []
    assert world.bounds.ended["network"] == world.bounds.ended.total() == 5


def test_the_address_with_the_most_connections_loses_one_first() -> None:
    world = World()
    innocent = world.open("10.0.0.1", Stage.SILENT)
    world.now += 1
    world.fill("10.0.0.2", 1, Stage.SILENT)
    world.ended.clear()
    world.open("10.0.0.3", Stage.SILENT)
    world.open("10.0.0.4", Stage.SILENT)
    world.now += FRESH_S
    assert world.open("10.0.0.5") is not None
    assert world.ended[0].source.address == "10.0.0.2"
    assert innocent not in world.ended


def test_a_new_connection_is_not_ended_for_a_slow_one() -> None:
    world = World()
    slow = [world.open(f"10.0.0.{number}", Stage.SENDING) for number in range(6)]
    world.now += FRESH_S
    for _ in slow:
        newcomer = world.open("10.0.0.9", Stage.SILENT)
        assert newcomer is not None
        assert newcomer not in world.ended
        world.bounds.enter(newcomer, Stage.WORKING)
        world.bounds.release(newcomer)
        assert world.open("10.0.0.8", Stage.SENDING) is not None


def test_a_known_address_loses_no_connection_to_strangers() -> None:
    world = World()
    known = world.open("10.0.0.5", Stage.SILENT)
    assert known is not None
    world.bounds.vouch(known)
    world.now += FRESH_S
    world.fill("10.1.{}.5", 3, Stage.SILENT)
    world.now += FRESH_S
    for number in range(20):
        assert world.open(f"10.2.{number}.5", Stage.SILENT) is not None
    assert known not in world.ended


@pytest.mark.slow
def test_a_reached_bound_is_logged_once_a_minute(
    logged: list[MutableMapping[str, Any]],
) -> None:
    world = World()
    world.fill("10.0.0.5", 1)
    text = "10.0.0.5 has 3 connections to the device, as many as an address may have"
    assert world.bounds.problems() == (text,)
    assert [(entry["event"], entry["most_from"]) for entry in logged] == [(text, "10.0.0.5")]
    world.fill("10.0.0.{}", 1)
    assert logged[-1]["event"] == (
        "10.0.0.0/24 has 6 connections to the device, as many as strangers may have"
    )
    assert (logged[-1]["most_from"], logged[-1]["of_these"]) == ("10.0.0.5", 3)
    assert len(logged) == len(world.bounds.problems()) == 2
    world.now += 60
    assert world.bounds.problems() == ()
    world.open("10.0.0.5")
    assert len(logged) == 3
    for number in range(5000):
        source = f"10.1.{number % 250}.{number // 250}"
        for _ in range(4):
            world.open(source, Stage.SILENT)
        world.bounds.problems()
    assert len(world.bounds.problems()) <= 256


def test_connections_and_bounds_are_measured() -> None:
    world = World()
    registry = CollectorRegistry()
    for collector in of_connections(world.bounds):
        registry.register(collector)
    world.fill("10.0.0.5", 1)
    world.open(ROOT)
    world.fill("10.0.1.{}", 1, Stage.SILENT)
    text = generate_latest(registry).decode()
    assert 'egressd_http_connections{of="strangers"} 9.0\n' in text
    assert 'egressd_http_connections{of="root"} 1.0\n' in text
    assert 'egressd_http_connections_refused_total{bound="address"} 253.0\n' in text
    assert 'egressd_http_connections_ended_total{bound="network"} 250.0\n' in text


addresses = st.builds("10.0.{}.{}".format, st.integers(0, 3), st.integers(0, 3))
steps = st.tuples(
    st.sampled_from(["open", "close", "vouch", "wait"]),
    st.one_of(addresses, st.sampled_from(["127.0.0.1", "user 0", "user 1000"])),
    st.sampled_from(Stage),
    st.integers(0, 30),
)


@given(st.lists(steps, max_size=120))
def test_no_bound_is_ever_exceeded_and_all_connections_are_counted(
    taken: list[tuple[str, str, Stage, int]],
) -> None:
    world = World()
    living: list[HeldConnection] = []
    for what, address, stage, number in taken:
        living = [held for held in living if held not in world.ended]
        if what == "open":
            user = address.removeprefix("user ")
            held = world.open(local_user(int(user)) if user != address else address, stage)
            living += [] if held is None else [held]
        elif what == "wait":
            world.now += number * 60
        elif living:
            held = living[number % len(living)]
            if what == "close":
                world.bounds.release(held)
                living.remove(held)
            else:
                world.bounds.vouch(held)
        living = [held for held in living if held not in world.ended]
        shares = [held.share for held in living]
        assert [world.bounds.count(share) for share in CallerShare] == [
            shares.count(share) for share in CallerShare
        ]
        for share in CallerShare:
            assert sum(s <= share for s in shares) <= SMALL.shares[share]
        for one in living:
            same = [held for held in living if held.source.address == one.source.address]
            assert one.source == ROOT or len(same) <= SMALL.address
            strangers = [
                held
                for held in living
                if held.share is CallerShare.STRANGERS and held.source.network == one.source.network
            ]
            assert len(strangers) <= SMALL.network
