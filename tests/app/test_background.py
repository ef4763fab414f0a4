"""Works of the api in the background, and their faults."""

from __future__ import annotations

import asyncio

import pytest
from structlog.testing import capture_logs

from egressd.app import background
from egressd.app.background import Background


async def test_a_work_that_a_fault_ends_is_run_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background, "_REPEAT_S", 0.0)
    runs = 0
    is_repeated, is_ended = asyncio.Event(), asyncio.Event()

    async def work() -> None:
        nonlocal runs
        runs += 1
        if runs == 1:
            raise ZeroDivisionError
        is_repeated.set()
        try:
            await asyncio.Event().wait()
        finally:
            is_ended.set()

    ends: list[str] = []
    works = Background(lambda: ends.append("end"))
    with capture_logs() as logs:
        works.repeat(work, "history")
        await is_repeated.wait()
        await works.close()
    assert (runs, [line["task"] for line in logs]) == (2, ["history"])
    assert is_ended.is_set()
    assert ends == []


async def test_a_fault_of_what_the_api_cannot_be_without_ends_it() -> None:
    ended = asyncio.Event()

    async def work() -> None:
        raise ZeroDivisionError

    works = Background(ended.set)
    with capture_logs() as logs:
        works.run(work(), "netd client")
        await ended.wait()
    await works.close()
    (line,) = logs
    assert (line["log_level"], line["task"]) == ("error", "netd client")
    assert isinstance(line["exc_info"], ZeroDivisionError)
