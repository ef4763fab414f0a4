"""The SQLite database behind `service`'s ``Store``."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sqlite3
import time
from pathlib import Path
from tempfile import mkstemp

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import SQLAlchemyError

from egressd.model.desired import DesiredState
from egressd.model.errors import Failed
from egressd.model.times import utc_text
from egressd.model.undo import LoggedChange, reversals, summary
from egressd.model.wording import Sentence, together
from egressd.store import rows, schema
from egressd.store.backup_file import read_content
from egressd.store.backup_reader import read_apart
from egressd.store.connection import (
    APPLICATION_ID,
    BadDatabase,
    check_database,
    check_file,
    engine_on,
    reader_on,
    reported,
)
from egressd.store.files import (
    create_private,
    move_durably,
    prepare_directory,
    sync_directory,
)
from egressd.store.preparation import prepare
from egressd.store.state_writer import StateWriter

_VERIFIED_S = 300.0
"""Seconds that reading a fresh backup may take, which is egressd's own."""
_LOGS = ("-wal", "-shm", "-journal")
"""Suffixes of files that SQLite puts beside an open database, or leaves when its process ends."""


class Database(StateWriter):
    """The state of one device, in ``state.db`` in a directory of the api's own.

    Every method raises Failed with the action and the cause. A commit is an fsync.
    """

    def __init__(self, directory: Path) -> None:
        super().__init__()
        self.path = directory / "state.db"
        self._place = f"the database {self.path}"
        self._engine: Engine | None = None
        self._reading: Engine | None = None

    async def open(self) -> None:
        """Open the database; create or upgrade it if necessary.

        Reads none of the program's own files once `prepare` was called. A database that cannot be
        trusted is left as it is, and so is a log that was left without its database.
        """
        await super().open()

    async def has_returned(self) -> bool:
        """Return False: a database on this box is not away."""
        return False

    async def entries_after(self, revision: int) -> None:
        """Return None: a box of its own keeps no log."""

    def problems(self) -> tuple[Sentence, ...]:
        """Return nothing: each fault is an error of the call that fails."""
        return ()

    async def backup(self, path: Path) -> None:
        """Write a snapshot of the state to the file `path` (mode 0600).

        Writes go on meanwhile. The file appears complete and restorable, or not at all; an existing
        backup is replaced.
        """
        await asyncio.to_thread(self._backup, path)

    async def read_backup(self, path: Path) -> DesiredState:
        """Return the state in a backup, including one of an older egressd. The file is only read,
        by a process of its own: see `backup_reader`.
        """
        return await asyncio.to_thread(read_apart, path)

    async def restore(self, wanted: DesiredState) -> None:
        """Replace the state by a backup's, in one transaction, as the next revision.

        For use while no service runs: a running service restores a backup as a change, so that it
        is in force too.
        """
        state = await self.load()
        # The kernel may still have flows with the numbers that the backup's names had.
        edits = [*state.numbers_to(wanted), *state.edits_to(wanted)]
        logged = LoggedChange(
            at=utc_text(time.time()),
            who="root",
            source="local",
            what="egressd restore",
            text=together(summary(state, edits)),
            reversals=reversals(state, edits),
        )
        await self.begin(edits, state.revision + 1, logged if logged.reversals else None)
        await self.commit()

    def set_aside(self) -> Path:
        """Rename a database that is damaged, its logs with it, so that `open` creates a new one.

        Returns the new path. For the operator's command only: it never happens automatically.
        """
        with reported(f"set the database {self.path} aside"):
            number = 1
            while (aside := self.path.with_name(f"state.db.bad-{number}")).exists():
                number += 1
            for suffix in ("", *_LOGS):
                source = Path(f"{self.path}{suffix}")
                if source.exists():
                    source.rename(f"{aside}{suffix}")
            sync_directory(self.path.parent)
        return aside

    # --- On the writer's thread. ---------------------------------------------------------

    def _open(self) -> None:
        prepare_directory(self.path.parent)
        with reported(f"open the database {self.path}"):
            if not self.path.exists():
                self._make()
            check_file(self.path)
            self._engine = engine_on(self.path)
            self._reading = reader_on(self.path)
            connection = self._engine.connect()
            try:
                self._check(connection)
            except BaseException:
                connection.close()
                raise
            self._open_connection = connection

    def _check(self, connection: Connection) -> None:
        """Raise BadDatabase if the database cannot be trusted, and upgrade an older one."""
        revisions = prepare()
        with connection.begin():
            found = check_database(connection, self.path, revisions.known)
        if found != revisions.newest:
            revisions.upgrade_file(self.path)

    def _make(self) -> None:
        """Create the database beside its place and move it there whole.

        So a file at its place was complete once: an empty one is a damaged one.
        """
        left = [name for s in _LOGS if Path(name := f"{self.path}{s}").exists()]
        if left:
            raise BadDatabase(
                f"open the database {self.path}",
                f"it is gone, but {left[0]} is still there: put the database back, "
                "or remove that too",
            )
        fresh = self.path.with_name("state.db.new")
        for suffix in _LOGS:
            Path(f"{fresh}{suffix}").unlink(missing_ok=True)
        os.close(create_private(fresh))
        engine = engine_on(fresh)
        with engine.connect() as connection, connection.begin():
            connection.exec_driver_sql(f"PRAGMA application_id = {APPLICATION_ID}")
            prepare().make(connection)
            rows.found_database(connection)
        # The last connection to close writes the log into the database and removes it.
        if Path(f"{fresh}-wal").exists():
            raise Failed(f"make the database {self.path}", "its log could not be written into it")
        move_durably(fresh, self.path)

    def _reconnect(self) -> None:
        """Replace the connection, because a disk error can leave it unusable.

        The new one is opened first: while one is open, SQLite keeps the index of its log in shared
        memory, which records that the failed transaction did not happen. Closing the last one would
        make SQLite read the log again, and the log may hold that transaction whole.
        """
        assert self._engine is not None
        old = self._connection
        with contextlib.suppress(SQLAlchemyError, sqlite3.Error):
            self._open_connection = self._engine.connect()
            old.close()
        # The same for a crash: a log emptied now holds no failed transaction. If the disk refuses
        # that, the next write that succeeds covers it.
        with contextlib.suppress(SQLAlchemyError, sqlite3.Error):
            driver = self._connection.connection.driver_connection
            assert driver is not None
            driver.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()

    def _reader(self) -> Connection:
        if self._reading is None:
            raise Failed("use the database", "it is not open")
        return self._reading.connect()

    def _writer(self) -> Connection:
        if self._engine is None:
            raise Failed("use the database", "it is not open")
        return self._engine.connect()

    def _backup(self, path: Path) -> None:
        action = f"back the database up to {path}"
        if path.resolve() == self.path.resolve():
            raise Failed(action, "that is the database itself")
        if path.is_symlink() or (path.exists() and not path.is_file()):
            raise Failed(action, "what is there is no file")  # a device, for example
        with reported(action), contextlib.ExitStack() as undo:
            source = sqlite3.connect(f"{self.path.absolute().as_uri()}?mode=ro", uri=True)
            undo.callback(source.close)
            descriptor, name = mkstemp(dir=path.parent, prefix=f"{path.name}.")
            os.close(descriptor)
            fresh = Path(name)
            undo.callback(fresh.unlink, missing_ok=True)
            with contextlib.closing(sqlite3.connect(fresh)) as target:
                source.backup(target)
                _remove_private(target)
                if target.execute("PRAGMA freelist_count").fetchone()[0]:
                    target.execute("VACUUM")
                # A single file, which can be read without a log beside it.
                target.execute("PRAGMA journal_mode = DELETE")
            try:
                read_content(fresh.read_bytes(), prepare(), _VERIFIED_S)
            except BadDatabase as error:  # pages are copied unchanged, damaged ones too
                raise BadDatabase(action, error.cause) from error
            move_durably(fresh, path)


def _remove_private(copy: sqlite3.Connection) -> None:
    """Remove this device's private data from a copy, down to the bytes in its free pages."""
    copy.execute("PRAGMA secure_delete = ON")
    there = {name for (name,) in copy.execute("SELECT name FROM sqlite_master")}
    for table in schema.PRIVATE:
        if table.name in there:  # an older egressd's database has not all of them
            copy.execute(f"DELETE FROM {table.name}")  # noqa: S608 - a name of ours
    copy.commit()
