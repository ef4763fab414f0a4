"""The task that checks something again and again."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable

import pytest
from structlog.testing import capture_logs

from egressd.model.errors import Failed
from egressd.netd.system.periodic import PeriodicTask
from tests.netd.clockless import CLOCKLESS
from tests.support.loops import Backend

PERIOD_S = 10.0


class Checks:
    """Counts the calls of a task, by the loop's time, and answers each as a test wants it."""

    def __init__(self) -> None:
        self.times: list[float] = []
        self.answers: list[float | Exception | None] = []
        self.takes_s = 0.0
        self.task = PeriodicTask("check", self.check, PERIOD_S)

    async def check(self) -> float | None:
        self.times.append(asyncio.get_running_loop().time())
        await asyncio.sleep(self.takes_s)
        answer = self.answers.pop(0) if self.answers else None
        if isinstance(answer, Exception):
            raise answer
        return answer


@pytest.fixture
def anyio_backend() -> Backend:
    """Return an event loop whose time passes at once."""
    return CLOCKLESS


async def live(checks: Checks, body: Callable[[], Awaitable[None]]) -> list[float]:
    """Await `body` beside the task; return the times of the calls since its start."""
    began = asyncio.get_running_loop().time()
    checks.task.start()
    try:
        await body()
    finally:
        await checks.task.close()
    return [round(time - began, 3) for time in checks.times]


async def test_a_call_follows_after_the_period_or_the_delay_last_returned() -> None:
    checks = Checks()
    checks.answers = [None, 3.0, None]
    assert await live(checks, lambda: asyncio.sleep(25)) == [0, 10, 13, 23]


async def test_an_error_ends_only_the_call() -> None:
    checks = Checks()
    checks.answers = [Failed("check", "it is dark"), OSError(5, "EIO"), ValueError("unexpected")]
    assert await live(checks, lambda: asyncio.sleep(35)) == [0, 10, 20, 30]


async def test_a_task_that_is_woken_calls_at_once_also_after_a_call_under_way() -> None:
    checks = Checks()
    checks.answers = [math.inf, math.inf, math.inf]
    checks.takes_s = 2.0

    async def body() -> None:
        await asyncio.sleep(100)
        checks.task.wake()
        await asyncio.sleep(1)
        checks.task.wake()
        await asyncio.sleep(50)

    assert await live(checks, body) == [0, 100, 102]


async def test_a_closed_task_makes_no_call() -> None:
    checks = Checks()

    async def body() -> None:
        await asyncio.sleep(1)
        await checks.task.close()
        checks.task.wake()
        await asyncio.sleep(50)

    assert await live(checks, body) == [0]


async def test_an_error_is_logged_once_until_it_changes_or_is_over() -> None:
    checks = Checks()
    dark, light = Failed("check", "it is dark"), ValueError("unexpected")
    checks.answers = [dark, Failed("check", "it is dark"), light, light, None, light]
    with capture_logs() as logged:
        await live(checks, lambda: asyncio.sleep(55))
    assert [(entry["log_level"], entry["event"]) for entry in logged] == [
        ("warning", "cannot check"),
        ("error", "cannot check"),
        ("error", "cannot check"),
    ]
