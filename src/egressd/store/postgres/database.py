"""The state of a site in PostgreSQL, behind the same methods as the SQLite store."""

from __future__ import annotations

import os
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Final, Literal, NoReturn, TypeAlias

import psycopg
from sqlalchemy import Connection, RootTransaction, TextClause, select, text
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from egressd.model.desired import DesiredState, Edit
from egressd.model.errors import Failed, Unconfirmed, VersionConflict
from egressd.model.site import LogEntry, StatePoint
from egressd.model.trial import ChangeTrial
from egressd.model.undo import LoggedChange, Reversal
from egressd.store import edit_log, rows, trial, undo_log
from egressd.store.connection import reported
from egressd.store.postgres.connection import (
    IS_NEWER,
    OTHER_HISTORY,
    TOO_NEW,
    channel_of,
    check_schema,
    check_server,
    driver_of,
    has_ended,
    standing,
)
from egressd.store.postgres.pipeline import Pipeline, pipelined_engine_on
from egressd.store.schema import meta
from egressd.store.sealing import SiteSeal
from egressd.store.state_writer import StateWriter

COMMIT_S: Final = 10.0
"""Seconds that a COMMIT may wait for a synchronous standby. ``statement_timeout`` does not end that
wait, and ending it by a cancel makes PostgreSQL report success, with a warning."""
INQUIRY_S: Final = 5.0
"""Seconds to find out what became of a COMMIT without an answer."""
_LOOK_S: Final = 0.1
_Outcome: TypeAlias = Literal["committed", "committed here", "aborted"]
"""The end of a transaction. `committed here`: at this server, whose synchronous standbys may not
have it."""

_UNABLE: Final = (
    # A member that has never run, whose number is 0, begins with the whole state.
    "SELECT name FROM member WHERE NOT is_revoked AND format_max BETWEEN 1 AND :format - 1"
)
"""The names of the members that could not read the new entry of the log."""
_ADVANCE: Final = text(
    # Without a row the division fails, and with it what follows in the pipeline, which would be
    # executed in vain, and wait for rows that other writers have locked.
    "WITH advanced AS ("
    "  UPDATE meta SET revision = :revision WHERE revision = :before RETURNING revision)"
    " SELECT 1 / count(*) FROM advanced"
)


def _log_if(condition: str) -> TextClause:
    """Return the statement that adds an entry to the log, and fails like `_ADVANCE` without
    `condition`.
    """
    return text(
        "WITH batch AS ("  # noqa: S608 - the conditions are below
        "  INSERT INTO edit_batch (id, format, edits) VALUES (:batch, :format, :edits)"
        "  RETURNING id),"
        " added AS ("
        "  INSERT INTO change (revision, batch, member) SELECT :revision, id, :member FROM batch"
        f" WHERE {condition} RETURNING revision)"
        " SELECT 1 / count(*) FROM added"
    )


_LOG: Final = _log_if("true")
_LOG_AFTER: Final = _log_if(
    "EXISTS (SELECT FROM change WHERE change.revision = :before AND change.batch = :batch_before)"
    f" AND NOT {IS_NEWER} AND NOT EXISTS ({_UNABLE})"
)
_HEAD: Final = select(meta.c.revision)
_ENTRY: Final = text("SELECT batch FROM change WHERE revision = :revision")
_STATUS: Final = text("SELECT pg_xact_status(CAST(:number AS xid8))")
_STANDBYS: Final = text("SHOW synchronous_standby_names")
_SNAPSHOT: Final = text("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
"""As a transaction's first statement, it has all others see the same state."""
_KEY: Final = text(
    "SELECT key_id, key_envelope FROM member JOIN site ON site.id = member.site"
    " WHERE role_name = session_user"
)
_NOTIFY: Final = text("SELECT pg_notify(:channel, :payload), pg_current_xact_id()::text AS number")
_READ_LOG: Final = text(
    "SELECT revision, batch, format, edits"
    " FROM change JOIN edit_batch ON edit_batch.id = change.batch"
    " WHERE revision > :revision ORDER BY revision"
)


def _shut(descriptor: int) -> None:
    """End a connection whose other thread waits for an answer, which then fails."""
    with suppress(OSError), socket.socket(fileno=os.dup(descriptor)) as connection:
        connection.shutdown(socket.SHUT_RDWR)


def _is_over(connection: Connection) -> bool:
    """True if the connection, which is in no transaction, is known to have ended."""
    return connection.closed or connection.invalidated or has_ended(driver_of(connection))


class SiteDatabase(StateWriter):
    """The state of the site that the connection's role is a member of."""

    def __init__(
        self,
        conninfo: str,
        *,
        site: str,
        seal: SiteSeal,
        renew: Callable[[str], SiteSeal] | None = None,
        commit_s: float = COMMIT_S,
        inquiry_s: float = INQUIRY_S,
    ) -> None:
        """`renew` returns the seal with the site's new key from this member's envelope, and keeps
        the key. It may raise Failed.
        """
        super().__init__()
        self._place = f"the database of the site {site}"
        self._site = site
        self._seal: SiteSeal = seal
        self._renew = renew
        self._engine = pipelined_engine_on(conninfo)
        self._commit_s = commit_s
        self._inquiry_s = inquiry_s
        self._number = 0
        """The open transaction's id, by which its end is found out if the answer is lost."""
        self._written: StatePoint | None = None
        """The state that the open transaction writes."""
        self.point: StatePoint | None = None
        """The state that was read or written last; None before the first one."""
        self._member_id = self._site_id = 0

    async def entries_after(self, revision: int) -> list[LogEntry] | None:
        """Return the log from `revision` + 1 on, in order. Return None if it does not reach back so
        far, or if that is not the state that was read or written last: then the whole state is to
        be loaded. Raises Failed, also if the database has another history.
        """
        return await self._do(lambda: self._entries_after(revision))

    @property
    def is_open(self) -> bool:
        """True while there is a connection, as far as is known."""
        return self._open_connection is not None and not self._open_connection.closed

    # --- On the writer's thread. ---------------------------------------------------------

    def _open(self) -> None:
        with reported(f"connect to {self._place}"):
            connection = self._engine.connect()
            try:
                with connection.begin():
                    self._check(connection)
            except BaseException:
                connection.close()
                raise
            self._open_connection = connection

    def _check(self, connection: Connection) -> None:
        check_server(connection, self._place)
        found = standing(connection, self._place)
        if found.site != self._site:
            raise Failed(
                f"use {self._place}",
                f"this box's role is a member of the site {found.site}: see cluster.site",
            )
        self._take_key(connection)
        self._member_id, self._site_id = found.member_id, found.site_id

    def _take_key(self, connection: Connection) -> None:
        """Have the site's key of this moment, if the site has got another one."""
        self._take(*connection.execute(_KEY).one())

    def _take(self, key_id: str, envelope: str | None) -> None:
        if key_id == self._seal.key_id:
            return
        if self._renew is not None and envelope:
            self._seal = self._renew(envelope)
        if key_id != self._seal.key_id:
            raise Failed(f"use {self._place}", "this box has another key than the site's")

    def _reconnect(self) -> None:
        self._drop()
        with suppress(Failed):
            self._open()

    def _drop(self) -> None:
        old, self._open_connection = self._open_connection, None
        if old is not None:
            with suppress(SQLAlchemyError, psycopg.Error):
                old.invalidate()  # without a ROLLBACK first
                old.close()

    @property
    def _connection(self) -> Connection:
        used = self._open_connection
        if used is not None and not used.in_transaction() and _is_over(used):
            self._drop()  # the server was restarted meanwhile: the next change need not fail
        if self._open_connection is None:
            self._open()
        return super()._connection

    def _load(self) -> DesiredState:
        with reported(f"read {self._place}"), self._connection.begin():
            self._connection.execute(_SNAPSHOT)
            if self.point is not None:
                head = self._connection.execute(_HEAD).scalar_one()
                self._check_history(self.point, self._batch_at(self.point.revision), head)
            check_schema(self._connection, self._place)  # it may have moved on
            self._take_key(self._connection)
            state = rows.read_state(self._connection, self._seal)
            batch = self._batch_at(state.revision)
            if batch is None:
                raise Failed(f"read {self._place}", "its log lacks the last change")
        self.point = StatePoint(state.revision, batch)
        return state

    def _batch_at(self, revision: int) -> str | None:
        """Return the batch of a revision, or None if the log does not have it."""
        found = self._connection.execute(_ENTRY, {"revision": revision}).scalar_one_or_none()
        return None if found is None else str(found)

    def _check_history(self, point: StatePoint, batch: str | None, head: int) -> None:
        """Raise Failed if the database's history is not the point's. `batch` is that of the
        point's revision there, or None if the log does not reach back so far.
        """
        if head < point.revision or batch not in (None, point.batch):
            raise Failed(f"use {self._place}", OTHER_HISTORY)

    def _found(self, state: DesiredState, generation: str) -> None:
        super()._found(state, generation)
        self.point = self._written

    def _write_whole(self, connection: Connection, state: DesiredState, generation: str) -> None:
        super()._write_whole(connection, state, generation)
        # For the batch's id: no state is before this one that it would lead from.
        connection.execute(_LOG, self._entry((), state.revision))

    def _write(
        self,
        connection: Connection,
        edits: Sequence[Edit],
        revision: int,
        logged: LoggedChange | None,
    ) -> None:
        pipeline = Pipeline(connection)
        self._transaction = pipeline.begin()
        advanced = pipeline.send(_ADVANCE, {"revision": revision, "before": revision - 1})
        entry = self._entry(edits, revision)
        if self.point is not None:
            entry |= {"before": revision - 1, "batch_before": self.point.batch}
        pipeline.send(_LOG if self.point is None else _LOG_AFTER, entry)
        rows.put_edits(pipeline.send, edits, self._seal)
        notice = {"channel": channel_of(self._site_id), "payload": str(revision)}
        notified = pipeline.send(_NOTIFY, notice)
        dropped = None
        if logged is not None:
            place = undo_log.place_of_inverse(revision)
            undo_log.write_logged(
                pipeline.send,
                logged,
                revision,
                lambda inverse: self._seal.close_bytes(inverse, place),
            )
            dropped = pipeline.send(trial.DROP) if logged.ends_trial else None
        try:
            pipeline.finish()
        except DBAPIError as error:
            if not isinstance(error.orig, psycopg.errors.DivisionByZero):
                raise
            self._rollback()
            rows.check_advanced(advanced.count, revision)
            self._refuse(entry)
        if dropped is not None:
            trial.check_dropped(dropped.count)
        self._number = int(notified.rows[0].number)

    def _reader(self) -> Connection:
        return self._engine.connect()

    def _writer(self) -> Connection:
        return self._engine.connect()

    def _check_key(self, connection: Connection) -> None:
        """Raise Failed if the site has got another key: the next change takes it."""
        if connection.execute(_KEY).one().key_id != self._seal.key_id:
            raise Failed(f"read {self._place}", "the site has just got another key: try again")

    def _put_trial(self, connection: Connection, begun: ChangeTrial, state: DesiredState) -> bool:
        self._check_key(connection)
        has_begun = trial.write_trial(
            connection, begun, state, lambda packed: self._seal.close_bytes(packed, trial.PLACE)
        )
        # The state here has no field that only a newer egressd knows.
        if connection.execute(text(f"SELECT {IS_NEWER}")).scalar_one():
            raise VersionConflict(f"write to {self._place}", TOO_NEW)
        return has_begun

    def _trial_state(self, connection: Connection) -> DesiredState | None:
        self._check_key(connection)
        return trial.read_trial_state(
            connection, lambda sealed: self._seal.open_bytes(sealed, trial.PLACE)
        )

    def _inverse(self, connection: Connection, revision: int) -> list[Reversal] | None:
        self._check_key(connection)
        place = undo_log.place_of_inverse(revision)
        return undo_log.read_inverse(
            connection, revision, lambda sealed: self._seal.open_bytes(sealed, place)
        )

    def _entry(self, edits: Sequence[Edit], revision: int) -> dict[str, Any]:
        """Return the parameters of the log's new entry."""
        batch = uuid.uuid4()
        sealed = self._seal.close_bytes(edit_log.pack(edits), place_of_batch(batch))
        self._written = StatePoint(revision, str(batch))
        return {
            "batch": batch,
            "format": edit_log.format_of(edits),
            "edits": sealed,
            "revision": revision,
            "member": self._member_id,
        }

    def _refuse(self, entry: Mapping[str, Any]) -> NoReturn:
        """Raise the reason for which the log does not take an entry."""
        action = f"write to {self._place}"
        with self._connection.begin():
            is_newer = self._connection.execute(text(f"SELECT {IS_NEWER}")).scalar_one()
            names = self._connection.execute(text(_UNABLE), entry).scalars().all()
        if is_newer:
            raise VersionConflict(action, TOO_NEW)
        if names:
            listed = ", ".join(sorted(names))
            raise VersionConflict(
                action, f"{listed} has an older egressd, which cannot read this: upgrade it first"
            )
        raise Failed(action, OTHER_HISTORY)

    def _entries_after(self, revision: int) -> list[LogEntry] | None:
        point = self.point
        if point is None or point.revision != revision:
            return None
        pipeline = Pipeline(self._connection)
        with reported(f"read {self._place}"), pipeline.begin():
            pipeline.send(_SNAPSHOT)
            here = pipeline.send(_ENTRY, {"revision": revision})
            head = pipeline.send(_HEAD)
            found = pipeline.send(_READ_LOG, {"revision": revision})
            key = pipeline.send(_KEY)
            pipeline.commit()
            pipeline.finish()
            if not head.rows or not key.rows:
                raise Failed(f"read {self._place}", "this box's role belongs to no member")
            batch = str(here.rows[0].batch) if here.rows else None
            self._check_history(point, batch, head.rows[0].revision)
            if batch is None:
                return None
            if found.rows:
                self._take(*key.rows[0])
            entries = [LogEntry(row.revision, self._edits_in(row)) for row in found.rows]
        if [entry.revision for entry in entries] != [
            *range(revision + 1, revision + 1 + len(entries))
        ]:
            return None
        if entries:
            self.point = StatePoint(entries[-1].revision, str(found.rows[-1].batch))
        return entries

    def _edits_in(self, row: Any) -> list[Edit]:
        if row.format > edit_log.FORMAT:
            raise Failed(f"read {self._place}", "its log is of a newer egressd: upgrade this one")
        return edit_log.unpack(self._seal.open_bytes(row.edits, place_of_batch(row.batch)))

    def _confirm(self, transaction: RootTransaction) -> None:
        try:
            with self._watched() as warnings:
                transaction.commit()
        except (SQLAlchemyError, psycopg.Error) as error:
            self._start_over()
            self._find_out(str(error).strip())
            warnings = []
        if warnings:
            # The wait for the standby was ended: this server alone has it
            # (PostgreSQL's syncrep.c, SyncRepWaitForLSN).
            raise Unconfirmed(f"commit to {self._place}", "; ".join(warnings))
        self.point = self._written

    @contextmanager
    def _watched(self) -> Iterator[list[str]]:
        """Bound the time of a COMMIT in the block; yields the list of the warnings it causes."""
        driver = driver_of(self._connection)
        warnings: list[str] = []

        def note(diagnostic: psycopg.errors.Diagnostic) -> None:
            if diagnostic.severity_nonlocalized == "WARNING":
                warnings.append(diagnostic.message_primary or "a warning")

        timer = threading.Timer(self._commit_s, _shut, (driver.fileno(),))
        timer.daemon = True  # it must not keep the process
        driver.add_notice_handler(note)
        timer.start()
        try:
            yield warnings
        finally:
            timer.cancel()
            driver.remove_notice_handler(note)

    def _find_out(self, cause: str) -> None:
        """Return if the transaction whose COMMIT got no answer is committed.

        Raises Failed if it is not, and Unconfirmed if that cannot be found out, or if it is
        committed at a server that has synchronous standbys: they may not have it.
        """
        action = f"commit to {self._place}"
        deadline = time.monotonic() + self._inquiry_s
        outcome: _Outcome | None = None
        while outcome is None and time.monotonic() < deadline:
            with suppress(Failed), reported(action), self._connection.begin():
                outcome = self._outcome()
            if outcome is None:
                time.sleep(_LOOK_S)
        if outcome == "aborted":
            raise Failed(action, cause)
        if outcome != "committed":
            raise Unconfirmed(action, cause)

    def _outcome(self) -> _Outcome | None:
        """Return the end of the last transaction, or None while it has none."""
        written = self._written
        assert written is not None
        status = self._connection.execute(_STATUS, {"number": str(self._number)}).scalar_one()
        if status == "aborted":
            return "aborted"
        if status != "committed":
            return None
        # A standby that took over without the transaction may give its id to another.
        if self._batch_at(written.revision) != written.batch:
            return "aborted"
        has_standbys = self._connection.execute(_STANDBYS).scalar_one() != ""
        return "committed here" if has_standbys else "committed"


def place_of_batch(batch: uuid.UUID) -> str:
    """Return the place of the edits of a batch, for their seal."""
    return f"edit_batch/{batch}/edits"
