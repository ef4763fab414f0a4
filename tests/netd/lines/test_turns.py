"""The order in which lines dial."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

import pytest

from egressd.netd.lines.turns import APART_S, BURST, Turns
from tests.support.loops import Backend


class Clock(asyncio.SelectorEventLoop):
    """An event loop whose time passes at once when it has nothing to do."""

    def __init__(self) -> None:
        super().__init__()
        self.skipped = 0.0

    def time(self) -> float:
        return self.skipped

    def _run_once(self) -> None:
        if not self._ready and self._scheduled:  # type: ignore[attr-defined]
            self.skipped = max(self.skipped, self._scheduled[0].when())  # type: ignore[attr-defined]
        super()._run_once()  # type: ignore[misc]


@pytest.fixture
def anyio_backend() -> Backend:
    """Return an event loop whose time passes at once."""
    return "asyncio", {"loop_factory": Clock}


async def dialled(lines: Iterable[tuple[str, int, float]]) -> list[tuple[str, float]]:
    """Return when each line dials: its name, its failures, and the time at which it wants to."""
    found: list[tuple[str, float]] = []

    async def dial(turns: Turns, name: str, failures: int, begin: float) -> None:
        await asyncio.sleep(begin)
        await turns.take(failures)
        found.append((name, asyncio.get_running_loop().time()))

    turns = Turns(asyncio.get_running_loop().time)
    await asyncio.gather(*(dial(turns, *each) for each in lines))
    return found


async def test_few_lines_do_not_wait() -> None:
    assert {when for _, when in await dialled((str(n), 0, 5.0) for n in range(BURST))} == {5.0}


async def test_many_lines_take_their_time() -> None:
    times = [when for _, when in await dialled((str(n), 3, 0.0) for n in range(256))]
    assert times[BURST - 1] < 0.01
    assert abs(times[-1] - (256 - BURST) * APART_S) < 0.01
    for second in range(int(times[-1])):
        assert sum(second < when <= second + 1 for when in times) <= 1 / APART_S + 1


async def test_a_line_that_was_lost_goes_before_those_that_fail() -> None:
    failing = [(f"failing {n}", 5, 0.0) for n in range(200)]
    order = await dialled([*failing, ("lost", 1, 3.0)])
    assert dict(order)["lost"] < 3.0 + 2 * APART_S


async def test_a_line_that_has_failed_for_long_has_its_turn() -> None:
    """Though more lines come, all the time, than may dial."""
    others = [(f"new {n}", 0, n * APART_S / 2) for n in range(3000)]
    order = await dialled([("old", 1000, 0.0), *others])
    assert dict(order)["old"] < 65.0


async def test_one_that_waits_no_longer_takes_no_turn() -> None:
    loop = asyncio.get_running_loop()
    turns = Turns(loop.time)
    waiting = [asyncio.ensure_future(turns.take(0)) for _ in range(100)]
    await asyncio.sleep(0)
    for task in waiting[BURST:]:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    await turns.take(0)
    assert loop.time() < 2 * APART_S
