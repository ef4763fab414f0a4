"""Rotation by the clock: each client once a period, and not all at once."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
import pytest

from egressd.model.plan import Group, Plan
from egressd.netd.health.rotation import ClockRotation
from egressd.planner.groups import Choice, Turn

CLIENTS = tuple(f"10.0.0.{number}" for number in range(1, 101))
PERIOD_S = 600


class Rig:
    """A group whose clients are rotated, and a clock that tests set."""

    def __init__(self) -> None:
        self.now = 12_345.0
        self.plan = Plan(
            groups={
                "group:1": Group(
                    mark=0x1800_0001,
                    members=("node:1", "node:2"),
                    strategy="sticky",
                    url="http://site.test/",
                    interval_s=10,
                    rotate_every_s=PERIOD_S,
                )
            }
        )
        self.choices = {"group:1": Choice(kept=dict.fromkeys(CLIENTS, "node:1"))}
        self.turned: list[str] = []
        self.slots = 0
        self.rotation = ClockRotation(
            lambda: self.plan, lambda: self.choices, self.rotate, lambda: self.now
        )

    async def rotate(self, turns: Mapping[str, Turn]) -> None:
        turn = turns["group:1"]
        assert turn.clients is not None
        self.turned += turn.clients
        self.slots += turn.and_slots

    async def look(self, seconds: float = 5.0) -> list[str]:
        """Let time pass, and return the clients that were rotated."""
        self.turned.clear()
        self.now += seconds
        await self.rotation.look()
        return sorted(self.turned)


@pytest.fixture
async def rig() -> Rig:
    rig = Rig()
    await rig.look()
    return rig


async def test_each_client_is_rotated_once_a_period_at_its_own_time(rig: Rig) -> None:
    looks = [await rig.look() for _ in range(PERIOD_S // 5)]
    assert sorted(client for each in looks for client in each) == sorted(CLIENTS)
    assert max(map(len, looks)) < len(CLIENTS) / 5
    assert rig.slots == 1


async def test_a_client_that_comes_is_not_rotated_at_once(rig: Rig) -> None:
    rig.choices["group:1"].kept["10.0.1.1"] = "node:2"
    assert "10.0.1.1" not in await rig.look()


async def test_another_period_begins_anew(rig: Rig) -> None:
    group = msgspec.structs.replace(rig.plan.groups["group:1"], rotate_every_s=60)
    rig.plan.groups["group:1"] = group
    assert await rig.look(PERIOD_S) == []
    assert await rig.look(60.0) == sorted(CLIENTS)


async def test_a_group_without_a_period_is_left_alone(rig: Rig) -> None:
    group = msgspec.structs.replace(rig.plan.groups["group:1"], rotate_every_s=0)
    rig.plan.groups["group:1"] = group
    assert await rig.look(10 * PERIOD_S) == []
