"""Missing instances are restarted, sooner or later."""

from __future__ import annotations

import asyncio
from itertools import pairwise

import pytest

from egressd.model.errors import Failed
from egressd.netd.reconciler import restarter
from egressd.netd.reconciler.restarter import Restarter


class Patient:
    """An instance that runs after a number of failed attempts."""

    def __init__(self, fails: int, error: Exception | None = None) -> None:
        self.fails = fails
        self.error = error or Failed("start it", "not yet")
        self.attempts: list[float] = []
        """Times of the attempts, in seconds."""
        self.attempted = asyncio.Event()
        self.restarter = Restarter(self._revive, lambda: len(self.attempts) <= self.fails)

    async def _revive(self) -> None:
        self.attempts.append(asyncio.get_running_loop().time())
        self.attempted.set()
        if len(self.attempts) <= self.fails:
            raise self.error

    async def next_attempt(self) -> None:
        await asyncio.wait_for(self.attempted.wait(), 5)
        self.attempted.clear()


@pytest.mark.slow
async def test_restarts_are_tried_at_growing_intervals_until_all_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(restarter, "_FIRST_S", 0.02)

    patient = Patient(fails=3)
    begun = asyncio.get_running_loop().time()
    patient.restarter.retry_later()
    patient.restarter.retry_later()
    for _ in range(4):
        await patient.next_attempt()
    times = [begun, *patient.attempts]
    pauses = [later - first for first, later in pairwise(times)]
    assert all(pause >= 0.019 * 2**n for n, pause in enumerate(pauses)), pauses
    await asyncio.sleep(0.4)
    assert len(patient.attempts) == 4, "it was tried though it runs"
    patient.fails = 4
    patient.restarter.retry_later()
    await patient.next_attempt()


async def test_a_loss_during_an_attempt_causes_another_attempt() -> None:
    """It may only have been a standby, with flows that have to be moved."""

    attempts = 0
    under_way, go_on = asyncio.Event(), asyncio.Event()

    async def revive() -> None:
        nonlocal attempts
        attempts += 1
        under_way.set()
        await go_on.wait()

    attended = Restarter(revive, lambda: False)
    attended.retry_now()
    await under_way.wait()
    attended.retry_now()
    go_on.set()
    await asyncio.sleep(0.05)
    assert attempts == 2


async def test_no_error_stops_the_attempts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(restarter, "_FIRST_S", 0.02)

    patient = Patient(fails=2, error=OSError(23, "too many open files"))
    patient.restarter.retry_later()
    for _ in range(3):
        await patient.next_attempt()


async def test_a_lost_instance_is_restarted_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(restarter, "_FIRST_S", 60.0)

    patient = Patient(fails=10)
    patient.restarter.retry_later()
    await asyncio.sleep(0.02)
    assert not patient.attempts
    for _ in range(2):
        patient.restarter.retry_now()
        await patient.next_attempt()
    patient.restarter.close()
    await asyncio.sleep(0.01)
    assert len(patient.attempts) == 2
