"""A measurement is shared by concurrent readers, and is never old."""

from __future__ import annotations

import asyncio

import pytest

from egressd.netd.reconciler.cached import Cached


class Counted:
    """Counts its measurements; fails if set to, and takes `lasts_s` by its clock."""

    def __init__(self, lasts_s: float = 0.0) -> None:
        self.times = 0
        self.fails = False
        self.lasts_s = lasts_s
        self.now = 1000.0

    def clock(self) -> float:
        return self.now

    async def __call__(self) -> int:
        self.times += 1
        self.now += self.lasts_s
        if self.fails:
            raise OSError("the kernel would not")
        return self.times


async def test_concurrent_readers_share_one_measurement() -> None:
    measure = Counted()
    meter = Cached(measure)
    found = await asyncio.gather(*(meter.read() for _ in range(50)))
    assert measure.times == 1
    assert set(found) == {1}


async def test_an_outdated_measurement_is_not_returned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("egressd.netd.reconciler.cached.FRESH_S", 0.0)
    meter = Cached(Counted())
    assert [await meter.read() for _ in range(3)] == [1, 2, 3]


async def test_a_failure_is_raised_and_not_kept() -> None:
    measure = Counted()
    meter = Cached(measure)
    measure.fails = True
    with pytest.raises(OSError, match="would not"):
        await meter.read()
    measure.fails = False
    assert await meter.read() == 2


async def test_a_slow_measurement_is_kept_longer_and_renewed_in_the_background() -> None:
    measure = Counted(lasts_s=0.4)
    meter = Cached(measure, kept=10, clock=measure.clock)

    async def read_after(seconds: float) -> int:
        measure.now += seconds
        found = await meter.read()
        await asyncio.sleep(0)  # let background tasks proceed
        await asyncio.sleep(0)
        return found

    assert await read_after(0) == 1
    assert await read_after(1.9) == 1
    assert measure.times == 1
    assert await read_after(0.2) == 1, "who asks does not wait"
    assert measure.times == 2
    assert await read_after(0.1) == 2
    assert await read_after(4.1) == 3, "nobody asked for too long"


async def test_a_background_failure_is_raised_once_the_last_value_is_outdated() -> None:
    measure = Counted(lasts_s=0.4)
    meter = Cached(measure, kept=10, clock=measure.clock)
    await meter.read()
    measure.fails = True
    measure.now += 2.5
    assert await meter.read() == 1
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert measure.times == 2
    measure.now += 4.1
    with pytest.raises(OSError, match="would not"):
        await meter.read()
