"""The current desired state, and the one way in which it changes.

A change is built against the current state, written to the store's open transaction, put in force
by netd, committed, and only then becomes the current state. A failure on the way leaves all three
as they were, or, if netd cannot be reached to confirm that, leaves `Ledger` knowing that it must
send the whole plan before anything else.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, Generic, Literal, TypeVar

import msgspec
import structlog

from egressd.model.desired import DesiredState, Edit
from egressd.model.drafts import Outcome
from egressd.model.errors import Failed, Invalid, Unconfirmed, WriteConflict
from egressd.model.messages import InstanceStatus
from egressd.model.plan import Change, Plan
from egressd.model.site import LogEntry
from egressd.model.times import utc_text
from egressd.model.undo import LoggedChange
from egressd.service.authorship import current_author
from egressd.service.event_names import instance_name
from egressd.service.number_allocation import numbered, unnumbered
from egressd.service.ports import Netd, SitePort, Store
from egressd.service.steps import LedgerStep, PlanChange
from egressd.service.whitelist_count import counted_as

log = structlog.get_logger()

_CONTEND_S: Final = 10.0
"""Seconds within which a change is built anew each time that another writer was faster."""
_MANY: Final = 100
"""Edits from which on a change of the plan is made in a thread."""

T = TypeVar("T")

CompilePlan = Callable[[DesiredState], Plan]


class Proposal(msgspec.Struct, Generic[T], frozen=True):
    """The change that a use case proposes, and its answer once the change is made."""

    edits: list[Edit]
    value: T
    undoes: int | None = None
    """The revision of the change that this one undoes."""
    ends_trial: bool = False
    """True if it takes back what was changed on trial."""


class Ledger:
    """Holds the state that is stored and in force. One change at a time."""

    def __init__(
        self,
        store: Store,
        netd: Netd,
        *,
        compile_plan: CompilePlan,
        plan_change: PlanChange,
        site: SitePort | None = None,
        took: Callable[[float], None] = lambda _: None,
        clock: Callable[[], str] = lambda: utc_text(time.time()),
    ) -> None:
        """`took` is called with the seconds that each accepted change took, its turn included;
        `clock` returns the time in UTC as text.
        """
        self._store = store
        self._netd = netd
        self._compile_plan = compile_plan
        self._plan_change = plan_change
        self._site = site
        self._took = took
        self._clock = clock
        self._lock = asyncio.Lock()
        self._changes: set[asyncio.Task[Any]] = set()
        self._state: DesiredState | None = None
        self._in_force = False
        self._is_behind = False
        """True if the stored state may be another one than `state`."""
        self._is_restoring = False

    @property
    def state(self) -> DesiredState:
        """The state of the last change that was acknowledged. Raises Failed before `load`."""
        if self._state is None:
            raise Failed("read the configuration", "it is not loaded yet")
        return self._state

    @property
    def revision(self) -> int:
        """The current state's revision."""
        return self.state.revision

    @property
    def is_in_force(self) -> bool:
        """True if netd has the current state, as far as is known; otherwise `resync` is due."""
        return self._in_force and not self._is_behind

    @property
    def phase(self) -> Literal["restoring", "running", "stopped"]:
        """``restoring`` until the state is in force, while a backup is restored, and while a member
        of a site has no lease; ``stopped`` after an operator's stop, or while the device is opened,
        because no rule applies then.
        """
        if self._state is None or not self.is_in_force or self._is_restoring:
            return "restoring"
        if self._site is not None and not self._site.has_lease:
            return "restoring"
        settings = self._state.settings
        return "stopped" if settings.stopped or settings.opened else "running"

    async def load(self) -> None:
        """Read the stored state, and assign the missing numbers. Once, at start, before netd is
        connected. Raises Failed.
        """
        async with self._lock:
            state = await self._store.load()
            edits: list[Edit] = []
            try:
                edits = await asyncio.to_thread(unnumbered, state)
            except Invalid as error:
                log.error("the stored configuration has too many names", reason=str(error))
            if edits:
                state = state.with_edits(edits, state.revision + 1)
                await self._store.begin(edits, state.revision)
                await self._store.commit()
            self._state = state

    async def resync(self) -> None:
        """Put the whole plan in force, regardless of netd's plan, and take over the epoch that netd
        gave its whitelist if that is not the state's. Repeat-safe.

        Called after each new connection to netd; changes wait meanwhile. Raises Failed if netd
        refuses or goes away; the next change tries again.
        """
        async with self._lock:
            self._in_force = False
            await self._follow()
            epoch = await self._put_in_force()
            is_fit = self._site is None or self._site.has_lease
            if is_fit and (edits := counted_as(self.state, epoch)):
                with suppress(Failed):  # the next connection does it
                    await self._make(LedgerStep.of(self.state, edits, self._plan_change))

    async def reread(self) -> None:
        """Read the stored state again, and put it in force if it is another one. Raises Failed."""
        async with self._lock:
            state = await self._store.load()
            if state != self.state:
                self._state, self._in_force = state, False
                await self._put_in_force()
            elif self._in_force:
                self._report()  # what was read may be more certain than what the replica had

    async def follow(self, revision: int) -> None:
        """Put the changes of the site's other members in force, unless the state is at `revision`
        already. Raises Failed.

        An instance that will not start here blocks its own clients only.
        """
        async with self._lock:
            await self._follow(is_behind=self.revision < revision)
            if not self._in_force:
                await self._put_in_force()

    async def change(
        self,
        build: Callable[[DesiredState], Proposal[T]],
        *,
        is_large: bool = False,
        is_restore: bool = False,
    ) -> Outcome[T]:
        """Make the change that `build` proposes for the current state; durable on return.

        `build` is pure; its exceptions are raised here, and nothing has changed then. With
        `is_large` it runs in a thread, so that other requests are served meanwhile; with
        `is_restore` the phase is ``restoring`` while the change is made. Raises Failed if the store
        or netd refuses; then the old state is stored and in force. Raises Unconfirmed if the store
        cannot tell whether the change is stored; then the next change finds out. Cancelling the
        caller does not cancel the change: it is made whole, or not at all.

        In a site it returns once each other member has the change in force, or lets no client
        through; the outcome names those. Raises Unconfirmed if that cannot be found out.
        """
        task = asyncio.create_task(self._change(build, is_large, is_restore))
        self._changes.add(task)
        task.add_done_callback(self._done)
        return await asyncio.shield(task)

    async def preview(self, build: Callable[[DesiredState], Proposal[T]]) -> T:
        """Return the answer of the change that `build` proposes; nothing is changed."""
        return (await asyncio.to_thread(build, self.state)).value

    async def close(self) -> None:
        """Wait for the changes in progress."""
        await asyncio.gather(*self._changes, return_exceptions=True)

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._changes.discard(task)
        if not task.cancelled():
            task.exception()  # retrieved, even if the caller was cancelled

    async def _change(
        self, build: Callable[[DesiredState], Proposal[T]], is_large: bool, is_restore: bool
    ) -> Outcome[T]:
        begun = time.perf_counter()
        async with self._lock:
            before = self.revision
            self._is_restoring = is_restore
            try:
                outcome = await self._made(build, is_large)
            finally:
                self._is_restoring = False
            revision = self.revision
        if self._site is not None:
            # Without the lock: another member may wait for this one to follow its change.
            notes = await self._site.everywhere(revision, is_new=revision != before)
            outcome = msgspec.structs.replace(outcome, notes=(*outcome.notes, *notes))
        if revision != before:
            self._took(time.perf_counter() - begun)
        return outcome

    async def _made(
        self, build: Callable[[DesiredState], Proposal[T]], is_large: bool
    ) -> Outcome[T]:
        deadline = time.monotonic() + _CONTEND_S
        while True:
            try:
                return await self._attempt(build, is_large)
            except WriteConflict:
                if time.monotonic() > deadline:
                    raise
            await self._follow(is_behind=True)

    async def _attempt(
        self, build: Callable[[DesiredState], Proposal[T]], is_large: bool
    ) -> Outcome[T]:
        if self._site is not None:
            # Before `build`: a state that is behind could show that nothing has to be changed.
            self._site.check()
        await self._follow()
        before = self.state
        refusal = None if self._in_force else await self._catch_up()
        if is_large:
            proposal, step = await asyncio.to_thread(self._prepare, before, build)
        else:
            proposal, step = self._prepare(before, build)
        if step is not None:
            author = current_author()
            logged = step.logged(
                author,
                self._clock(),
                undoes=proposal.undoes,
                ends_trial=proposal.ends_trial,
            )
            await self._make(step, logged)
            author.revision = self.revision
            return Outcome(proposal.value, step.notes, self.revision)
        if refusal is not None:
            raise refusal
        return Outcome(proposal.value)

    async def _follow(self, *, is_behind: bool = False) -> None:
        """Take over what others have stored if the state may be behind. If that cannot be done
        change by change, the whole plan is to be put in force next.
        """
        if not (is_behind or self._is_behind):
            return
        self._is_behind = False
        try:
            entries = await self._store.entries_after(self.revision)
            if entries is None:
                self._state, self._in_force = await self._store.load(), False
            elif entries:
                await self._take_over(entries)
        except BaseException:
            self._is_behind = True
            raise

    async def _take_over(self, entries: Sequence[LogEntry]) -> None:
        edits = [edit for entry in entries for edit in entry.edits]
        before = self.state
        after = before.with_edits(edits, entries[-1].revision)
        if not self._in_force:
            self._state = after
            return
        last = list({(edit.table, edit.key): edit for edit in edits}.values())
        if len(last) > _MANY:
            change = await asyncio.to_thread(self._plan_change, before, after, last)
        else:
            change = self._plan_change(before, after, last)
        try:
            await self._netd.apply(change, is_strict=False)
        except BaseException as error:
            self._in_force = False
            if not isinstance(error, Failed):
                raise
        finally:
            self._state = after
        if self._in_force:
            self._report(await self._blocked_by(change))

    async def _blocked_by(self, change: Change) -> tuple[str, ...]:
        """Return the names of the targets that a change brings and that are not in force here."""
        if not change.instances.put:
            return ()
        there: Mapping[str, InstanceStatus] = {}
        with suppress(Failed):  # netd's own problems name them too
            there = (await self._netd.status()).instances
        keys = [key for key in change.instances.put if key in there and there[key].problem]
        return tuple(sorted({instance_name(key, self.state) for key in keys}))

    def _report(self, blocked: tuple[str, ...] = ()) -> None:
        if self._site is not None:
            self._site.applied(self.revision, blocked)

    def _prepare(
        self, before: DesiredState, build: Callable[[DesiredState], Proposal[T]]
    ) -> tuple[Proposal[T], LedgerStep | None]:
        """Return the proposal of `build`, and the step to it; None if nothing would change."""
        proposal = build(before)
        edits = [edit for edit in proposal.edits if before.row(edit.table, edit.key) != edit.after]
        if not edits:
            return proposal, None
        return proposal, LedgerStep.of(before, numbered(before, edits), self._plan_change)

    async def _make(self, step: LedgerStep, logged: LoggedChange | None = None) -> None:
        """Store the step and put it in force, or neither. Even an empty change is sent to netd, so
        that its revision is the store's.
        """
        await self._begin(step, logged)
        try:
            if self._in_force:
                await self._netd.apply(step.change)
            else:
                # netd refuses the stored state: the change may mend that.
                await self._set_plan(step.after)
        except BaseException:
            try:
                await self._store.rollback()
            finally:
                await self._recover()
                self._take_back_word()
            raise
        try:
            await self._store.commit()
        except Unconfirmed:
            self._is_behind, self._in_force = True, False
            raise
        except BaseException:
            await self._take_back(step)
            raise
        self._state = step.after
        self._report()

    async def _take_back(self, step: LedgerStep) -> None:
        """Make netd return to the state before a step that could not be stored."""
        edits = [Edit(e.table, e.key, step.before.row(e.table, e.key)) for e in step.edits]
        try:
            await self._netd.apply(self._plan_change(step.after, step.before, edits))
        except Failed:
            await self._recover()
        self._take_back_word()

    async def _begin(self, step: LedgerStep, logged: LoggedChange | None) -> None:
        """Begin to store the step, and announce it in a site, at the same time."""
        if self._site is None:
            await self._store.begin(step.edits, step.after.revision, logged)
            return
        results = await asyncio.gather(
            self._store.begin(step.edits, step.after.revision, logged),
            self._site.announce(),
            return_exceptions=True,
        )
        faults = [each for each in results if each is not None]
        if not faults:
            return
        try:
            if results[0] is None:
                await self._store.rollback()
        finally:
            self._take_back_word()
        raise faults[0]

    def _take_back_word(self) -> None:
        """Withdraw what `_begin` has announced, if the state before it is in force."""
        if self._site is not None and self._in_force:
            self._site.taken_back()

    async def _recover(self) -> None:
        """After netd failed: check whether the current state is still in force; if not, put it in
        force now or before the next change.
        """
        was_in_force, self._in_force = self._in_force, False
        with suppress(Failed):
            # netd may refuse a plan of its own revision: other resolvers change the plan.
            if was_in_force and (await self._netd.status()).revision == self.revision:
                self._in_force = True
            else:
                await self._put_in_force()

    async def _catch_up(self) -> Failed | None:
        """Put the current state in force; return the refusal, if any."""
        try:
            await self._put_in_force()
        except Failed as error:
            return error
        return None

    async def _put_in_force(self) -> int:
        epoch = await self._set_plan(self.state)
        self._report()
        return epoch

    async def _set_plan(self, state: DesiredState) -> int:
        epoch = await self._netd.set_plan(await asyncio.to_thread(self._compile_plan, state))
        self._in_force = True
        return epoch
