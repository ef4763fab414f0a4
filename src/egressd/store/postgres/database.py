"""The state of a site in PostgreSQL, behind the same methods as the SQLite store."""

from __future__ import annotations

import os
import socket
import threading
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Final

import psycopg
from sqlalchemy import Connection, RootTransaction, Row, select, text
from sqlalchemy.exc import SQLAlchemyError

from egressd.model.desired import Edit
from egressd.model.errors import Failed, Unconfirmed
from egressd.model.site import LogEntry
from egressd.store import edit_log
from egressd.store.connection import reported
from egressd.store.postgres.connection import (
    channel_of,
    check_server,
    driver_of,
    engine_on,
    standing,
)
from egressd.store.schema import meta
from egressd.store.sealing import SiteSeal
from egressd.store.state_writer import StateWriter

COMMIT_S: Final = 10.0
"""Seconds that a COMMIT may wait for a synchronous standby. ``statement_timeout`` does not end that
wait, and ending it by a cancel makes PostgreSQL report success, with a warning."""
INQUIRY_S: Final = 5.0
"""Seconds to find out what became of a COMMIT without an answer."""
_LOOK_S: Final = 0.1

_LOG: Final = text(
    "WITH batch AS ("
    "  INSERT INTO edit_batch (id, format, edits) VALUES (:batch, :format, :edits) RETURNING id)"
    " INSERT INTO change (revision, batch, member) SELECT :revision, id, :member FROM batch"
)
_TELL: Final = text("SELECT pg_notify(:channel, :payload), pg_current_xact_id()::text")
_READ_LOG: Final = text(
    "SELECT revision, batch, format, edits"
    " FROM change JOIN edit_batch ON edit_batch.id = change.batch"
    " WHERE revision > :revision ORDER BY revision"
)


def _shut(descriptor: int) -> None:
    """End a connection whose other thread waits for an answer, which then fails."""
    with suppress(OSError), socket.socket(fileno=os.dup(descriptor)) as connection:
        connection.shutdown(socket.SHUT_RDWR)


class SiteDatabase(StateWriter):
    """The state of the site that the connection's role is a member of."""

    def __init__(
        self,
        conninfo: str,
        *,
        site: str,
        seal: SiteSeal,
        commit_s: float = COMMIT_S,
        inquiry_s: float = INQUIRY_S,
    ) -> None:
        super().__init__()
        self._place = f"the database of the site {site}"
        self._site = site
        self._seal: SiteSeal = seal
        self._engine = engine_on(conninfo)
        self._commit_s = commit_s
        self._inquiry_s = inquiry_s
        self._number = 0
        """The open transaction's id, by which its end is found out if the answer is lost."""
        self._revision = 0
        """The revision that the open transaction writes."""
        self._member_id = self._site_id = 0

    async def entries_after(self, revision: int) -> list[LogEntry] | None:
        """Return the log from `revision` + 1 on, in order. Return None if it does not reach back so
        far: then the whole state is to be loaded. Raises Failed.
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
        if found.key_id != self._seal.key_id:
            raise Failed(f"use {self._place}", "this box has another key than the site's")
        self._member_id, self._site_id = found.member_id, found.site_id

    def _reconnect(self) -> None:
        old, self._open_connection = self._open_connection, None
        if old is not None:
            with suppress(SQLAlchemyError, psycopg.Error):
                old.close()
        with suppress(Failed):
            self._open()

    @property
    def _connection(self) -> Connection:
        if self._open_connection is None:
            self._open()
        return super()._connection

    def _write(self, connection: Connection, edits: Sequence[Edit], revision: int) -> None:
        super()._write(connection, edits, revision)
        self._revision = revision
        batch = uuid.uuid4()
        sealed = self._seal.close_bytes(edit_log.pack(edits), _place_of(batch))
        values = {"batch": batch, "format": edit_log.FORMAT, "edits": sealed}
        connection.execute(_LOG, {**values, "revision": revision, "member": self._member_id})
        told = {"channel": channel_of(self._site_id), "payload": str(revision)}
        _, number = connection.execute(_TELL, told).one()
        self._number = int(number)

    def _entries_after(self, revision: int) -> list[LogEntry] | None:
        with reported(f"read {self._place}"), self._connection.begin():
            head = self._connection.execute(select(meta.c.revision)).scalar_one()
            found = self._connection.execute(_READ_LOG, {"revision": revision}).all()
            last = found[-1].revision if found else revision
            # Others may have added some since `head` was read. If `head` is an older one than
            # `revision`, the database is an older copy, and `load` says so.
            if [row.revision for row in found] != [*range(revision + 1, last + 1)] or (
                not revision <= head <= last
            ):
                return None
            return [LogEntry(row.revision, self._edits_in(row)) for row in found]

    def _edits_in(self, row: Row[Any]) -> list[Edit]:
        if row.format > edit_log.FORMAT:
            raise Failed(f"read {self._place}", "its log is of a newer egressd: upgrade this one")
        return edit_log.unpack(self._seal.open_bytes(row.edits, _place_of(row.batch)))

    def _confirm(self, transaction: RootTransaction) -> None:
        try:
            with self._watched() as warnings:
                transaction.commit()
        except (SQLAlchemyError, psycopg.Error) as error:
            self._start_over()
            self._find_out(str(error).strip())
            return
        if warnings:
            # The wait for the standby was ended: this server alone has it
            # (PostgreSQL's syncrep.c, SyncRepWaitForLSN).
            raise Unconfirmed(f"commit to {self._place}", "; ".join(warnings))

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

        Raises Failed if it is not, and Unconfirmed if that cannot be found out.
        """
        action = f"commit to {self._place}"
        deadline = time.monotonic() + self._inquiry_s
        query = text("SELECT pg_xact_status(CAST(:number AS xid8))")
        while time.monotonic() < deadline:
            with suppress(Failed), reported(action), self._connection.begin():
                status = self._connection.execute(query, {"number": str(self._number)}).scalar_one()
                if status == "committed":
                    # A standby that took over without the transaction may give its id to another.
                    revision = self._connection.execute(select(meta.c.revision)).scalar_one()
                    if revision >= self._revision:
                        return
                    break
                if status == "aborted":
                    break
            time.sleep(_LOOK_S)
        else:
            raise Unconfirmed(action, cause)
        raise Failed(action, cause)


def _place_of(batch: uuid.UUID) -> str:
    return f"edit_batch/{batch}/edits"
