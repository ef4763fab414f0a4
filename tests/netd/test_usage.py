"""A measurement is shared by those who ask at the same time, and is never old."""

from __future__ import annotations

import asyncio

import pytest

from egressd.netd import usage
from egressd.netd.usage import Meter, Usage

pytestmark = pytest.mark.anyio


class Counted:
    """Measures how often it was asked to; fails when told to."""

    def __init__(self) -> None:
        self.times = 0
        self.fails = False

    async def __call__(self) -> Usage:
        self.times += 1
        if self.fails:
            raise OSError("the kernel would not")
        return Usage(connections=self.times, memory=1000)


async def test_many_who_ask_at_once_share_one_measurement() -> None:
    measure = Counted()
    meter = Meter(measure)
    found = await asyncio.gather(*(meter.read() for _ in range(50)))
    assert measure.times == 1
    assert set(found) == {Usage(connections=1, memory=1000)}


async def test_an_old_one_is_not_handed_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(usage, "FRESH_S", 0.0)
    meter = Meter(Counted())
    assert [(await meter.read()).connections for _ in range(3)] == [1, 2, 3]


async def test_a_failure_is_told_and_not_kept() -> None:
    measure = Counted()
    meter = Meter(measure)
    measure.fails = True
    with pytest.raises(OSError, match="would not"):
        await meter.read()
    measure.fails = False
    assert (await meter.read()).connections == 2
