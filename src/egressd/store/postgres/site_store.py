"""The store of a member of a site: the state is in the site's database, and a replica is here.

The replica is the same ``state.db`` as that of a device of its own. From it the member starts,
answers reads and makes backups while the site's database is away; a change needs the database.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final

import structlog

from egressd.model.desired import DesiredState, Edit
from egressd.model.errors import Failed, VersionConflict, WriteConflict
from egressd.model.site import LogEntry, StatePoint
from egressd.model.trial import ChangeTrial
from egressd.model.undo import LoggedChange, PastChange, Reversal
from egressd.model.wording import Sentence, say
from egressd.store.connection import reported
from egressd.store.database import Database
from egressd.store.files import replace_durably
from egressd.store.postgres.database import SiteDatabase

log = structlog.get_logger()

_SET, _CLEAR = b"1", b"0"
GATE_MARK: Final = "site-gated"
"""The file in the api's folder that is set while this box lets clients through by a lease only."""
PAIR_MARK: Final = "site-pair"
"""The file there that is set while the site has two members."""
BEHIND_MARK: Final = "site-behind"
"""The file there that is set while the other box may have made changes without this one."""


class DurableMark:
    """A note on disk that is set or clear: that the replica lacks an acknowledged change, for one.

    The file has one byte, which is written in place, so that it can be changed on a full disk.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def open(self) -> None:
        """Make the file unless it is there. Raises Failed."""
        if not self._path.exists():
            with reported(f"write {self._path}"):
                replace_durably(self._path, _CLEAR)

    def exists(self) -> bool:
        """True if the file is there: `open` was called once."""
        return self._path.exists()

    def is_set(self) -> bool:
        """True if it is set. Raises Failed."""
        with reported(f"read {self._path}"):
            return self._path.read_bytes() != _CLEAR

    def put(self, is_set: bool) -> None:
        """Set or clear the mark, durably. Raises Failed."""
        if self.is_set() == is_set:
            return
        with reported(f"write {self._path}"):
            descriptor = os.open(self._path, os.O_WRONLY | os.O_NOFOLLOW)
            try:
                os.pwrite(descriptor, _SET if is_set else _CLEAR, 0)
                os.fsync(descriptor)
            finally:
                os.close(descriptor)


def open_mark(folder: Path, name: str) -> DurableMark:
    """Return a mark in the api's data directory; a new one is clear. Raises Failed."""
    mark = DurableMark(folder / name)
    mark.open()
    return mark


def replica_mark(folder: Path) -> DurableMark:
    """Return the mark in the api's data directory that the replica lacks an acknowledged change."""
    return DurableMark(folder / "replica-behind")


class AdoptionMark:
    """Records that this box's own configuration, as a backup has it, is given up for a site's."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "adopts-site"

    def put(self, backup: Path) -> None:
        """Give up the configuration that the file `backup` has. Raises Failed."""
        with reported(f"write {self.path}"):
            with closing(
                sqlite3.connect(f"{backup.absolute().as_uri()}?mode=ro", uri=True)
            ) as file:
                generation, revision = file.execute(
                    "SELECT generation, revision FROM meta"
                ).fetchone()
            replace_durably(self.path, f"{generation} {revision}".encode())

    def has(self, generation: str | None, revision: int) -> bool:
        """True if the configuration of that generation and revision is given up. Raises Failed."""
        with reported(f"read {self.path}"):
            return self.path.exists() and (self.path.read_text() == f"{generation} {revision}")


class SiteStore:
    """`SiteDatabase` with `Database` as its replica, behind the methods of both. Raises Failed."""

    def __init__(self, site: SiteDatabase, replica: Database) -> None:
        self._site = site
        self._replica = replica
        self._mark = replica_mark(replica.path.parent)
        self._adoption = AdoptionMark(replica.path.parent)
        self._has_started = False
        self._has_state = False
        """True once the state was read from the site's database."""
        self._away = ""
        """The last fault of the site's database; empty if it could be used."""
        self._behind = ""
        """The fault that keeps the replica from the site's state; empty if it has it."""
        self._edits: Sequence[Edit] = ()
        self._revision = 0

    @property
    def point(self) -> StatePoint | None:
        """The site's state that was read or written last; None if none was since the start."""
        return self._site.point if self._has_state else None

    def problems(self) -> tuple[Sentence, ...]:
        """Return sentences about a database that is away, and a replica that is behind."""
        away = (say("site-away", reason=self._away),) if self._away else ()
        behind = (say("site-replica-behind", reason=self._behind),) if self._behind else ()
        return (*away, *behind)

    async def open(self) -> None:
        """Open the replica. The site's database need not be reachable."""
        await self._replica.open()
        self._mark.open()

    async def close(self) -> None:
        """Close both."""
        await self._site.close()
        await self._replica.close()

    async def load(self) -> DesiredState:
        """Return the state of the site, and make the replica equal to it.

        The first call returns the replica's state while the site's database cannot be used: then
        `begin` raises WriteConflict once it can, since it may hold another one. A replica that
        lacks a change is not used: netd has the plan with that change.
        """
        is_first, self._has_started = not self._has_started, True
        try:
            return await self._load()
        except Failed as error:
            if not is_first:
                raise
            if self._mark.is_set():
                action = "start without the site's database"
                raise Failed(action, f"the replica lacks acknowledged changes; {error}") from error
            log.error("starting from the replica of the site's state", error=str(error))
            return await self._replica.load()

    async def has_returned(self) -> bool:
        """Look whether a database that was away can be used again. Return True if its state has
        not been read since the start.
        """
        if not self._away:
            return False
        try:
            with self._watched():
                await self._site.generation()
        except Failed:
            return False
        return not self._has_state

    async def entries_after(self, revision: int) -> Sequence[LogEntry] | None:
        """Return the site's changes after `revision`, which the replica has then. Return None if
        the whole state is to be loaded: the log does not reach back so far, or the replica lacks a
        change.
        """
        if not self._has_state or self._behind:
            return None
        with self._watched():
            entries = await self._site.entries_after(revision)
        if entries:
            try:
                await self._replica.append(entries)
            except Failed as error:
                self._fell_behind(error)
        return entries

    async def begin(
        self, edits: Sequence[Edit], revision: int, logged: LoggedChange | None = None
    ) -> None:
        """Write `edits` inside an open transaction, and add `logged` to the site's log of changes
        with their inverses: durable only after `commit`.
        """
        if not self._has_state:
            await self._load()
            raise WriteConflict("write to the site's database", "it was away until now")
        with self._watched():
            await self._site.begin(edits, revision, logged)
        self._edits, self._revision = edits, revision

    async def commit(self) -> None:
        """Make the open transaction durable at the site, then here, before returning.

        A failure here is only reported, since the change is stored: the replica is made whole with
        the next change.
        """
        with self._watched():
            await self._site.commit()
        try:
            if self._behind:
                await self._load()
            else:
                await self._replica.begin(self._edits, self._revision)
                await self._replica.commit()
        except Failed as error:
            self._fell_behind(error)

    async def rollback(self) -> None:
        """Roll back the open transaction, if there is one."""
        await self._site.rollback()

    async def past_changes(self, number: int) -> list[PastChange]:
        """Return the latest changes of the site, the last one first."""
        return await self._site.past_changes(number)

    async def changes_about(self, revision: int) -> list[PastChange]:
        """Return a change of the site, those that undo it, and so on; none if there is no such
        one.
        """
        return await self._site.changes_about(revision)

    async def inverse(self, revision: int) -> list[Reversal] | None:
        """Return the inverse of a change of the site; None if there is none."""
        return await self._site.inverse(revision)

    async def trial(self) -> ChangeTrial | None:
        """Return the trial that goes on in the site, or None."""
        return await self._site.trial()

    async def trial_state(self) -> DesiredState | None:
        """Return the state that the trial's changes are taken back to; None without a trial."""
        return await self._site.trial_state()

    async def begin_trial(self, begun: ChangeTrial, state: DesiredState) -> bool:
        """Store a trial of the site. Return False if there is one already."""
        return await self._site.begin_trial(begun, state)

    async def end_trial(self) -> bool:
        """Delete the site's trial. Return False if there is none."""
        return await self._site.end_trial()

    async def backup(self, path: Path) -> None:
        """Write a snapshot of the state to the file `path`, as `Database.backup` does."""
        if self._behind:
            raise Failed(
                f"back the database up to {path}", f"the replica is behind: {self._behind}"
            )
        await self._replica.backup(path)

    async def read_backup(self, path: Path) -> DesiredState:
        """Return the state in a backup. The file is only read."""
        return await self._replica.read_backup(path)

    @contextmanager
    def _watched(self) -> Iterator[None]:
        """Note whether the site's database can be used, from what happens in the block."""
        try:
            yield
        except (WriteConflict, VersionConflict):
            raise
        except Failed as error:
            self._away = str(error)
            raise
        self._away = ""

    async def _load(self) -> DesiredState:
        with self._watched():
            state, generation = await self._site_state()
        self._has_state = True
        try:
            if await self._replica.load() != state or (
                generation != await self._replica.generation()
            ):
                await self._replica.found(state, generation)
            self._mark.put(False)
            self._behind = ""
        except Failed as error:
            self._fell_behind(error)
        return state

    def _fell_behind(self, error: Failed) -> None:
        self._behind = str(error)
        log.error("the replica of the site's state is behind", error=str(error))
        try:
            self._mark.put(True)
        except Failed as worse:
            log.error("a start without the site's database would lose changes", error=str(worse))

    async def _site_state(self) -> tuple[DesiredState, str]:
        """Return the site's state and its generation. If it has none yet, this box's is its first.

        Raises Failed for the state of another site.
        """
        own, own_generation = await self._replica.load(), await self._replica.generation()
        generation = await self._site.generation()
        if generation is None:
            assert own_generation is not None
            await self._site.found(own, own_generation)
            generation = own_generation
        if own.revision and generation != own_generation:
            if self._adoption.has(own_generation, own.revision):
                return await self._site.load(), generation
            raise Failed(
                "use the site's database",
                "it holds another configuration than this box: to take the site's over, back this"
                " box's up and remove its state.db",
            )
        state = await self._site.load()
        if state.revision < own.revision:
            raise Failed(
                "use the site's database",
                f"it is at revision {state.revision}, and this box at {own.revision}: it is an"
                " older copy. To take it over, back this box's configuration up, stop the service,"
                " and remove state.db",
            )
        return state, generation
