"""The part of a store that reads and writes the state, the same on every kind of database.

All work on the open connection is done by one thread, in order; the coroutines here only wait for
it. A failed write leaves the stored state as it was, and writes succeed again once the database
does.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from typing import TypeVar

from sqlalchemy import Connection, RootTransaction

from egressd.model.desired import DesiredState, Edit
from egressd.model.errors import Failed, VersionConflict, WriteConflict
from egressd.model.site import LogEntry
from egressd.model.trial import ChangeTrial
from egressd.model.undo import LoggedChange, PastChange, Reversal
from egressd.store import rows, trial, undo_log
from egressd.store.connection import reported
from egressd.store.sealing import Seal

T = TypeVar("T")


class StateWriter(ABC):
    """One connection with at most one open transaction. Every method raises Failed with the action
    and the cause.

    ``_place`` names the database in messages; ``_seal`` seals the secrets in it,
    if others can read it.
    """

    _place: str
    _seal: Seal | None = None

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="store")
        self._open_connection: Connection | None = None
        self._transaction: RootTransaction | None = None

    async def open(self) -> None:
        """Connect to the database, and check that it can be trusted."""
        await self._do(self._open)

    async def close(self) -> None:
        """Roll back an open transaction and close. The object cannot be used afterwards."""
        await self._do(self._close)
        self._thread.shutdown()

    async def load(self) -> DesiredState:
        """Return the stored state. 10,000 rules take about 0.1 s."""
        return await self._do(self._load)

    async def begin(
        self, edits: Sequence[Edit], revision: int, logged: LoggedChange | None = None
    ) -> None:
        """Write `edits` inside an open transaction, and add `logged` to the log of changes with
        their inverses: durable only after `commit`.
        """
        await self._do(lambda: self._begin(edits, revision, logged))

    async def commit(self) -> None:
        """Make the open transaction durable before returning."""
        await self._do(self._commit)

    async def append(self, entries: Sequence[LogEntry]) -> None:
        """Write several revisions in one transaction, durably."""
        await self._do(lambda: self._append(entries))

    async def generation(self) -> str | None:
        """Return the UUID that the stored state was founded with; None if there is no state yet."""
        return await self._do(self._generation)

    async def found(self, state: DesiredState, generation: str) -> None:
        """Replace all that is stored by `state`, as it is, with a generation of its own."""
        await self._do(lambda: self._found(state, generation))

    async def rollback(self) -> None:
        """Roll back the open transaction, if there is one."""
        await self._do(self._rollback)

    async def past_changes(self, number: int) -> list[PastChange]:
        """Return the latest changes that are stored, the last one first. A change in progress does
        not delay it.
        """
        return await asyncio.to_thread(
            self._apart, lambda connection: undo_log.read_latest(connection, number)
        )

    async def changes_about(self, revision: int) -> list[PastChange]:
        """Return a stored change, those that undo it, and so on; none if there is no such one."""
        return await asyncio.to_thread(
            self._apart, lambda connection: undo_log.read_about(connection, revision)
        )

    async def inverse(self, revision: int) -> list[Reversal] | None:
        """Return the inverse of a stored change; None if there is none."""
        return await asyncio.to_thread(
            self._apart, lambda connection: self._inverse(connection, revision)
        )

    async def _do(self, call: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, call)

    async def trial(self) -> ChangeTrial | None:
        """Return the trial that goes on, or None."""
        return await asyncio.to_thread(self._apart, trial.read_trial)

    async def trial_state(self) -> DesiredState | None:
        """Return the state that the trial's changes are taken back to; None without a trial."""
        return await asyncio.to_thread(self._apart, self._trial_state)

    async def begin_trial(self, begun: ChangeTrial, state: DesiredState) -> bool:
        """Store a trial, durably. Return False, and store nothing, if there is one already. It
        waits for a change in progress.
        """
        return await asyncio.to_thread(
            self._write_apart, lambda connection: self._put_trial(connection, begun, state)
        )

    async def end_trial(self) -> bool:
        """Delete the trial, durably; what was changed stays. Return False if there is none."""
        return await asyncio.to_thread(self._write_apart, trial.drop_trial)

    # --- On the writer's thread. ---------------------------------------------------------

    @abstractmethod
    def _open(self) -> None:
        """Set ``_open_connection``."""

    @abstractmethod
    def _reconnect(self) -> None:
        """Replace the connection after a failure, which can leave it unusable."""

    @abstractmethod
    def _reader(self) -> Connection:
        """Return a new connection for reading, for the caller to close. Called on any thread."""

    def _apart(self, read: Callable[[Connection], T]) -> T:
        with reported(f"read {self._place}"), closing(self._reader()) as connection:
            return read(connection)

    @abstractmethod
    def _writer(self) -> Connection:
        """Return a new connection for writing, for the caller to close. Called on any thread."""

    def _write_apart(self, write: Callable[[Connection], T]) -> T:
        with (
            reported(f"write to {self._place}"),
            closing(self._writer()) as connection,
            connection.begin(),
        ):
            return write(connection)

    def _put_trial(self, connection: Connection, begun: ChangeTrial, state: DesiredState) -> bool:
        return trial.write_trial(connection, begun, state)

    def _trial_state(self, connection: Connection) -> DesiredState | None:
        return trial.read_trial_state(connection)

    def _inverse(self, connection: Connection, revision: int) -> list[Reversal] | None:
        return undo_log.read_inverse(connection, revision)

    @property
    def _connection(self) -> Connection:
        if self._open_connection is None:
            raise Failed("use the database", "it is not open")
        return self._open_connection

    def _close(self) -> None:
        with reported(f"close {self._place}"):
            self._rollback()
            if self._open_connection is not None:
                self._open_connection.close()
                self._open_connection = None

    def _load(self) -> DesiredState:
        with reported(f"read {self._place}"), self._connection.begin():
            return rows.read_state(self._connection, self._seal)

    def _generation(self) -> str | None:
        with reported(f"read {self._place}"), self._connection.begin():
            return rows.generation(self._connection)

    def _found(self, state: DesiredState, generation: str) -> None:
        try:
            with reported(f"write to {self._place}"), self._connection.begin():
                self._write_whole(self._connection, state, generation)
        except Failed:
            self._start_over()
            raise

    def _begin(self, edits: Sequence[Edit], revision: int, logged: LoggedChange | None) -> None:
        connection = self._connection
        self._rollback()  # left open by a caller that was cancelled
        try:
            with reported(f"write to {self._place}"):
                self._write(connection, edits, revision, logged)
        except (WriteConflict, VersionConflict):
            self._rollback()  # the connection is sound
            raise
        except Failed:
            self._start_over()
            raise

    def _append(self, entries: Sequence[LogEntry]) -> None:
        try:
            with reported(f"write to {self._place}"), self._connection.begin():
                for entry in entries:
                    rows.write_edits(self._connection, entry.edits, entry.revision, self._seal)
        except Failed:
            self._start_over()
            raise

    def _commit(self) -> None:
        transaction, self._transaction = self._transaction, None
        if transaction is None:
            raise Failed("commit to the database", "no transaction is open")
        self._confirm(transaction)

    def _write_whole(self, connection: Connection, state: DesiredState, generation: str) -> None:
        rows.found_state(connection, state, generation, self._seal)

    def _write(
        self,
        connection: Connection,
        edits: Sequence[Edit],
        revision: int,
        logged: LoggedChange | None,
    ) -> None:
        """Begin ``_transaction``, and write in it."""
        self._transaction = connection.begin()
        rows.write_edits(connection, edits, revision, self._seal)
        if logged is not None:
            undo_log.write_logged(connection.execute, logged, revision)
            if logged.ends_trial:
                trial.check_dropped(connection.execute(trial.DROP).rowcount)

    def _confirm(self, transaction: RootTransaction) -> None:
        try:
            with reported(f"commit to {self._place}"):
                transaction.commit()
        except Failed:
            self._start_over()
            raise

    def _rollback(self) -> None:
        transaction, self._transaction = self._transaction, None
        if transaction is not None:
            with reported(f"roll back {self._place}"):
                transaction.rollback()

    def _start_over(self) -> None:
        with suppress(Failed):
            self._rollback()
        self._reconnect()
