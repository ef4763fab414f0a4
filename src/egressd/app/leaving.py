"""Leaving a site: a member becomes a box of its own again, with the configuration that it has.

``egressd cluster leave`` notes it in the api's data directory. The api that starts without a site
then tells the site, and removes the files by which the box was a member: so clients of this box are
served all the time, by its lease until that start and without one from then on. A site that cannot
be reached is informed later.
"""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Final

import msgspec
import structlog

from egressd.app.config import Config
from egressd.model.errors import Failed
from egressd.model.wording import Sentence, say
from egressd.store.connection import reported
from egressd.store.files import replace_durably

log = structlog.get_logger()

_NOTE: Final = "leaves-site"
_TRIES_S: Final = (10.0, 30.0, 60.0, 300.0)
"""Seconds between attempts to tell the site; the last ones for ever."""
_REPLICA_S: Final = 5.0
"""Seconds in which a running service brings the replica up to the site's revision."""
_LOOK_S: Final = 0.2
_GONE: Final = ("is not permitted to log in", "does not exist")
"""Parts of PostgreSQL's answers to a role that is no member any more."""


class Departure(msgspec.Struct, frozen=True, kw_only=True):
    """The content of the note: where the site is informed, and what is then to be removed."""

    database: str
    site: str
    files: tuple[str, ...]
    """Names of files in the api's data directory."""


def note(settings: Config, permit: Callable[[str], None]) -> None:
    """Note that this box leaves its site with its next start without ``[cluster]``.

    `permit` gets the reason why the site cannot be asked, or an empty text, and raises if the box
    shall not leave. Raises EgressdError if it lacks a change of the site; nothing is noted then.
    """
    from egressd.app import shared_access, site_key
    from egressd.app.member_files import (
        AUTHORITY,
        MEMBER_CERTIFICATE,
        MEMBER_KEY,
        folder_of,
    )
    from egressd.store.postgres.site_store import BEHIND_MARK, GATE_MARK, PAIR_MARK

    permit(_why_unknown(settings))
    marks = (GATE_MARK, PAIR_MARK, BEHIND_MARK)
    files = [*marks, MEMBER_KEY, MEMBER_CERTIFICATE, AUTHORITY, shared_access.RECORD, site_key.NAME]
    if folder_of(settings).exists():
        files.remove(site_key.NAME)  # the box of the site's authority keeps the key, too
    departure = Departure(
        database=settings.cluster.database, site=settings.cluster.site, files=tuple(files)
    )
    path = settings.api_data / _NOTE
    with reported(f"write {path}"):
        replace_durably(path, msgspec.json.encode(departure))


def withdraw(folder: Path) -> None:
    """Remove the note in the api's data directory: the box is a member. Raises Failed."""
    path = folder / _NOTE
    with reported(f"remove {path}"):
        path.unlink(missing_ok=True)


def _why_unknown(settings: Config) -> str:
    """Return why the site's revision is unknown; empty if this box has it. Raises Failed if this
    box lacks a change.
    """
    from egressd.store.postgres.connection import check_server, engine_on
    from egressd.store.postgres.site_store import replica_mark

    action = f"leave the site {settings.cluster.site}"
    mark = replica_mark(settings.api_data)
    if not mark.exists():
        raise Failed(action, "the service has not run since this box joined it: restart it first")
    if mark.is_set():
        raise Failed(action, "this box's replica lacks a change: egressd status says why")
    place = f"the database of the site {settings.cluster.site}"
    try:
        with (
            reported(f"use {place}"),
            engine_on(settings.cluster.database).connect() as connection,
            connection.begin(),
        ):
            check_server(connection, place)
            head = connection.exec_driver_sql("SELECT revision FROM meta").scalar_one_or_none()
    except Failed as error:
        return str(error)
    if head is None:
        return ""  # no service has put its configuration there yet
    given_up = time.monotonic() + _REPLICA_S
    while (own := _revision(settings.api_data)) != head:
        if time.monotonic() > given_up:
            raise Failed(
                action,
                f"the site is at revision {head}, and this box's replica at {own}: start the"
                " service, so that it takes the changes over",
            )
        time.sleep(_LOOK_S)
    return ""


def _revision(folder: Path) -> int | None:
    """Return the revision of this box's replica; None if there is none. Raises Failed."""
    from egressd.store.database import Database

    path = Database(folder).path
    # While no service has it open there is no log of SQLite's, which root must not make.
    how = "mode=ro" if path.with_name(f"{path.name}-shm").exists() else "immutable=1"
    with (
        reported(f"read {path}"),
        closing(sqlite3.connect(f"{path.absolute().as_uri()}?{how}", uri=True)) as replica,
    ):
        row = replica.execute("SELECT revision FROM meta").fetchone()
    return None if row is None else int(row[0])


class Leaving:
    """Tells a site that this box has left it, if the note says so, and removes the note."""

    def __init__(self, folder: Path) -> None:
        """`folder` is the api's data directory."""
        self._folder = folder
        self.is_due: Final = (folder / _NOTE).exists()
        self._site = ""
        self._reason = ""

    def problems(self) -> tuple[Sentence, ...]:
        """Return a sentence while the site could not be informed."""
        if not self._reason:
            return ()
        return (say("site-untold", site=self._site, reason=self._reason),)

    async def follow(self) -> None:
        """Tell the site, again and again until it knows; then wait for ever."""
        tries = iter(_TRIES_S)
        pause = next(tries)
        while (self._folder / _NOTE).exists():
            try:
                await asyncio.to_thread(self._tell)
                self._reason = ""
            except Failed as error:
                log.warning("site cannot be informed that this box has left", error=str(error))
                self._reason = str(error)
                await asyncio.sleep(pause)
                pause = next(tries, pause)
        await asyncio.Event().wait()

    def _tell(self) -> None:
        path = self._folder / _NOTE
        with reported(f"read {path}"):
            departure = msgspec.json.decode(path.read_bytes(), type=Departure)
        self._site = departure.site
        self._leave(departure)
        for name in departure.files:
            with reported(f"remove {self._folder / name}"):
                (self._folder / name).unlink(missing_ok=True)
        withdraw(self._folder)
        log.info("box has left its site", site=departure.site)

    @staticmethod
    def _leave(departure: Departure) -> None:
        # Loaded here: a box that was never a member does not need them.
        from egressd.store.postgres.connection import engine_on

        try:
            with (
                reported(f"leave the site {departure.site}"),
                engine_on(departure.database).connect() as connection,
                connection.begin(),
            ):
                connection.exec_driver_sql("SELECT egressd_leave()")
        except Failed as error:
            if not any(text in str(error) for text in _GONE):
                raise
