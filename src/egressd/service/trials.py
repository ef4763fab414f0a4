"""Changes on trial: what changes is taken back as a whole, unless it is confirmed in time.

The trial and the state before it are in the store, so that a restart changes nothing: a trial whose
time is over by then is taken back as soon as netd can do it. In a site it is the site's, any member
confirms it, and the first one whose time is over takes back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Annotated, Final

import msgspec
import structlog
from msgspec import Meta

from egressd.model.desired import DesiredState
from egressd.model.errors import EgressdError, Missing, Obstructed, WriteConflict
from egressd.model.faults import fault
from egressd.model.times import utc_text
from egressd.model.trial import ChangeTrial, taking_back
from egressd.model.undo import summary
from egressd.model.wording import Sentence, as_sentence, say, together
from egressd.service.authorship import DEVICE, Author, authored
from egressd.service.journal import Journal
from egressd.service.ledger import Ledger, Proposal
from egressd.service.ports import TrialStore

log = structlog.get_logger()

AGAIN_S: Final = 10.0
"""Seconds between attempts to take changes back."""
_TRIES: Final = 10
"""Times that a trial is begun anew because the state has just changed."""
LOOK_S: Final = 5.0
"""Seconds between looks at the trial of a site, which another member may begin or end."""


class TrialState(msgspec.Struct, frozen=True, kw_only=True):
    """Changes on trial, for an operator."""

    is_running: bool
    began_at: Annotated[str, Meta(description="Empty without a trial, as the other texts are.")]
    ends_at: Annotated[str, Meta(description="The time at which the changes are taken back.")]
    minutes: int
    who: Annotated[str, Meta(description="The author, as in the changes.")]
    changes: Annotated[int, Meta(description="The number of changes since it began.")]


_NONE: Final = TrialState(is_running=False, began_at="", ends_at="", minutes=0, who="", changes=0)


class ChangeTrials:
    """The trial of this device, or of its site. `follow` ends it in time."""

    def __init__(
        self,
        ledger: Ledger,
        store: TrialStore,
        journal: Journal,
        *,
        now: Callable[[], float],
        is_shared: bool,
    ) -> None:
        """`now` returns Unix time in seconds. `is_shared`: other boxes begin and end it, too."""
        self._ledger = ledger
        self._store = store
        self._journal = journal
        self._now = now
        self._is_shared = is_shared
        self._trial: ChangeTrial | None = None
        self._deadline = 0.0
        """The time by the loop's clock at which it ends: the wall clock may be set meanwhile."""
        self._problem = ""
        self._changed = asyncio.Event()

    def problems(self) -> tuple[Sentence, ...]:
        """Return a sentence while changes are on trial, and why they are not taken back."""
        if self._trial is None:
            return ()
        if self._problem:
            return (say("trial-stuck", reason=as_sentence(self._problem)),)
        return (say("trial-running", until=utc_text(self._trial.ends_at)),)

    async def state(self) -> TrialState:
        """Return the trial that goes on. Raises Failed."""
        await self._look()
        trial = self._trial
        if trial is None:
            return _NONE
        return TrialState(
            is_running=True,
            began_at=utc_text(trial.began_at),
            ends_at=utc_text(trial.ends_at),
            minutes=trial.minutes,
            who=trial.who,
            changes=self._ledger.revision - trial.revision,
        )

    async def begin(self, minutes: int, who: str) -> ChangeTrial:
        """Take back what changes from now on, unless it is confirmed within `minutes`. Raises
        Obstructed, if there is a trial already, and Failed.
        """
        for _ in range(_TRIES - 1):
            with suppress(WriteConflict):
                return await self._begin(minutes, who)
            await self._ledger.follow(self._ledger.revision + 1)
        return await self._begin(minutes, who)

    async def _begin(self, minutes: int, who: str) -> ChangeTrial:
        state = self._ledger.state
        trial = ChangeTrial(
            began_at=int(self._now()), minutes=minutes, who=who, revision=state.revision
        )
        if not await self._store.begin_trial(trial, state):
            there = await self._store.trial()
            until = utc_text(there.ends_at) if there is not None else ""
            raise Obstructed(fault("", "trial-there", until=until))
        self._take(trial)
        return trial

    async def confirm(self) -> int:
        """Keep what was changed, and return the number of changes. Raises Missing, Failed."""
        await self._look()
        trial = self._trial
        if trial is None or not await self._store.end_trial():
            self._take(None)
            raise Missing(fault("", "no-trial"))
        self._take(None)
        return self._ledger.revision - trial.revision

    async def revert(self) -> Sentence:
        """Take back what was changed, now. Raises Missing, and Failed as every change does."""
        first = await self._store.trial_state()
        if first is None:
            raise Missing(fault("", "no-trial"))
        text = await self._take_back(first)
        self._take(None)
        return text

    async def follow(self) -> None:
        """Take changes back in time, until cancelled."""
        while True:
            self._changed.clear()
            wait: float | None = LOOK_S if self._is_shared else None
            try:
                self._note(await self._store.trial())
                if self._trial is not None:
                    left = self._deadline - asyncio.get_running_loop().time()
                    if left <= 0:
                        await self._end()
                        continue
                    wait = left if wait is None else min(left, wait)
                self._problem = ""
            except EgressdError as error:
                log.error("changes on trial are not taken back", error=str(error))
                self._problem, wait = str(error), AGAIN_S
            with suppress(TimeoutError):
                async with asyncio.timeout(wait):
                    await self._changed.wait()

    async def _look(self) -> None:
        """Take the trial that goes on."""
        trial = await self._store.trial()
        if trial != self._trial:
            self._take(trial)

    def _take(self, trial: ChangeTrial | None) -> None:
        """Note the trial that goes on, and have `follow` look at it."""
        self._note(trial)
        self._changed.set()

    def _note(self, trial: ChangeTrial | None) -> None:
        if trial == self._trial:
            return
        self._trial, self._problem = trial, ""
        if trial is not None:
            left = min(max(trial.ends_at - self._now(), 0), 60 * trial.minutes)
            self._deadline = asyncio.get_running_loop().time() + left

    async def _end(self) -> None:
        first = await self._store.trial_state()
        if first is not None:
            author = Author(who=DEVICE)
            with authored(author):
                text = await self._take_back(first)
            if author.revision is not None:
                self._record(text, author)
            log.warning("changes on trial were taken back", revision=author.revision)
        self._take(None)

    def _record(self, text: Sentence, author: Author) -> None:
        self._journal.note(
            author.record(utc_text(self._now()), text),
            "everything",
        )

    async def _take_back(self, first: DesiredState) -> Sentence:
        """Take the changes back; return what that did."""

        def build(state: DesiredState) -> Proposal[Sentence]:
            edits = taking_back(state, first)
            text = together(summary(state, edits)) or say("trial-without-change")
            return Proposal(edits, say("trial-ended", text=text), ends_trial=True)

        outcome = await self._ledger.change(build, is_large=True)
        if outcome.revision is None:  # it changed nothing, so that it was not stored
            await self._store.end_trial()
        return outcome.value
