"""The state of timed backups, as the api reports it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from egressd.app import timed_backups
from egressd.app.timed_backups import LATE_S, BackupSchedule
from egressd.model.times import utc_text
from egressd.model.wording import NONE, Sentence, say
from egressd.service.judge import Notice, problem_notice
from egressd.service.overview import TimedBackups

_LOOK_S: Final = 10.0
"""Seconds between looks at the record."""


class BackupWatch:
    """Reads the record of timed backups."""

    def __init__(self, data: Path, clock: Callable[[], float] = time.time) -> None:
        """`clock` returns the Unix time."""
        self._data = data
        self._clock = clock
        self._started = clock()

    def seen(self) -> TimedBackups | None:
        """Return schedule and outcome; None if no timed backups are set up."""
        schedule, now = timed_backups.read(self._data), self._clock()
        if schedule is None:
            return None
        return TimedBackups(
            folder=schedule.folder,
            every_h=schedule.every_h,
            keep=schedule.keep,
            last_success=utc_text(schedule.made_at) if schedule.made_at else "",
            next_run=utc_text(schedule.next_at(now)),
            problem=self._problem(schedule, now),
        )

    def problems(self) -> tuple[Sentence, ...]:
        """Return a sentence if timed backups fail."""
        seen = self.seen()
        return (seen.problem,) if seen is not None and seen.problem else ()

    def _problem(self, schedule: BackupSchedule, now: float) -> Sentence:
        if schedule.reason:
            return say("timed-backup-failed", folder=schedule.folder, reason=schedule.reason)
        # After a boot, the one that was missed is made within minutes.
        if schedule.is_late(now) and now > self._started + LATE_S:
            return say("timed-backup-late", folder=schedule.folder)
        return NONE

    async def follow(self, notify: Callable[[Notice], None]) -> None:
        """Report once when timed backups begin to fail, and once when they succeed again."""
        reported = NONE
        while True:
            problem = next(iter(self.problems()), NONE)
            if problem and not reported:
                notify(problem_notice("", problem, is_over=False))
            elif reported and not problem:
                notify(problem_notice("", reported, is_over=True))
            reported = problem
            await asyncio.sleep(_LOOK_S)
