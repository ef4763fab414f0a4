"""The state of a site in PostgreSQL, behind the same methods as the SQLite store."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Final

import psycopg
from sqlalchemy import Connection, RootTransaction, select, text
from sqlalchemy.exc import SQLAlchemyError

from egressd.model.desired import Edit
from egressd.model.errors import Failed, Unconfirmed
from egressd.store.connection import reported
from egressd.store.postgres.connection import check_server, driver_of, engine_on, standing
from egressd.store.schema import meta
from egressd.store.sealing import SiteSeal
from egressd.store.state_writer import StateWriter

COMMIT_S: Final = 10.0
"""Seconds that a COMMIT may wait for a synchronous standby. ``statement_timeout`` does not end that
wait, and ending it by a cancel makes PostgreSQL report success, with a warning."""
INQUIRY_S: Final = 5.0
"""Seconds to find out what became of a COMMIT without an answer."""
_LOOK_S: Final = 0.1


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
        number = connection.execute(text("SELECT pg_current_xact_id()::text"))
        self._number = int(number.scalar_one())

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
