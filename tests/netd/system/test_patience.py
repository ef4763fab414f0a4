"""The progress of a process, and waiting for it."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from itertools import count

import pytest

from egressd.netd.system.patience import (
    Effort,
    GivenUp,
    ProcessProgress,
    WaitLimits,
    of_main_thread,
    of_process,
)

PATIENCE = WaitLimits(silence_s=10.0, work_s=30.0)


def given_up_after(
    share: float,
    *,
    patience: WaitLimits = PATIENCE,
    until_s: float = 10_000,
    runnable: bool = False,
) -> float | None:
    """Return the second in which a process with that share of a processor is given up, which it has
    until that second; None if it is waited for an hour.
    """
    progress = ProcessProgress(patience, Effort(5.0, is_runnable=False))
    for second in range(1, 3600):
        effort = Effort(5.0 + share * min(second, until_s), is_runnable=runnable)
        if progress.is_given_up(second, effort):
            return second
    return None


def test_a_process_that_does_nothing_is_given_up_after_the_silence() -> None:
    assert given_up_after(0.0) == 10


def test_a_process_that_stops_computing_is_given_up_after_the_silence() -> None:
    assert given_up_after(0.1, until_s=33) == 43


@pytest.mark.parametrize(("share", "second"), [(1.0, 30), (0.2, 150), (0.02, 1500)])
def test_a_slow_process_gets_as_much_work_done_as_a_fast_one(share: float, second: int) -> None:
    assert given_up_after(share) == second


def test_much_work_in_a_short_time_is_no_reason_to_give_up() -> None:
    assert given_up_after(16.0) == 10


def test_a_process_that_wakes_up_now_and_then_makes_no_progress() -> None:
    assert given_up_after(0.007) == 10


def test_a_process_that_waits_for_its_turn_is_waited_for() -> None:
    assert given_up_after(0.0, runnable=True) is None


def test_the_longest_time_ends_a_process_that_seems_to_progress() -> None:
    patience = WaitLimits(silence_s=10.0, work_s=30.0, longest_s=60.0)
    assert given_up_after(0.2, patience=patience) == 60


async def test_work_of_a_process_without_progress_is_given_up_and_left_alone() -> None:
    work = asyncio.get_running_loop().create_future()
    with pytest.raises(GivenUp) as given_up:
        await WaitLimits(silence_s=0.05, work_s=1.0).wait_for(work, lambda: Effort(0.0, False))
    assert given_up.value.waited_s == pytest.approx(0.05)
    assert not work.done()


async def test_work_of_a_process_with_progress_is_waited_for() -> None:
    work = asyncio.get_running_loop().create_future()
    looks = count()

    def look() -> Effort:
        if (number := next(looks)) == 200:
            work.set_exception(ValueError("the result is not looked at"))
        return Effort(number * 0.01, is_runnable=False)

    await WaitLimits(silence_s=0.02, work_s=60.0).wait_for(work, look)
    assert next(looks) >= 200
    assert isinstance(work.exception(), ValueError)


def test_the_effort_of_a_process_is_its_processor_time() -> None:
    work = "import time\nwhile time.process_time() < 0.2: pass\nprint(flush=True)\ninput()"
    with subprocess.Popen(
        [sys.executable, "-c", work], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        for effort in (of_process(process.pid), of_main_thread(process.pid)):
            assert effort.used_s >= 0.19
        process.kill()
    assert of_process(process.pid) == Effort(0.0, is_runnable=False)
    assert of_main_thread(os.getpid()).is_runnable
