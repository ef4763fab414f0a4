"""The store of a member of a site: the state is in the site's database, and a replica is here.

The replica is the same ``state.db`` as that of a device of its own. From it the member starts,
answers reads and makes backups while the site's database is away; a change needs the database.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import structlog

from egressd.model.desired import DesiredState, Edit
from egressd.model.errors import Failed, WriteConflict
from egressd.model.wording import Sentence, say
from egressd.store.database import Database
from egressd.store.postgres.database import SiteDatabase

log = structlog.get_logger()


class SiteStore:
    """`SiteDatabase` with `Database` as its replica, behind the methods of both. Raises Failed."""

    def __init__(self, site: SiteDatabase, replica: Database) -> None:
        self._site = site
        self._replica = replica
        self._has_state = False
        """True once the state was read from the site's database."""
        self._away = ""
        """The last fault of the site's database; empty if it could be used."""
        self._behind = ""
        """The fault that keeps the replica from the site's state; empty if it has it."""
        self._edits: Sequence[Edit] = ()
        self._revision = 0

    def problems(self) -> tuple[Sentence, ...]:
        """Return sentences about a database that is away, and a replica that is behind."""
        away = (say("site-away", reason=self._away),) if self._away else ()
        behind = (say("site-replica-behind", reason=self._behind),) if self._behind else ()
        return (*away, *behind)

    async def open(self) -> None:
        """Open the replica. The site's database need not be reachable."""
        await self._replica.open()

    async def close(self) -> None:
        """Close both."""
        await self._site.close()
        await self._replica.close()

    async def load(self) -> DesiredState:
        """Return the state of the site, and make the replica equal to it.

        The first call returns the replica's state while the site's database cannot be used: then
        `begin` raises WriteConflict once it can, since it may hold another one.
        """
        try:
            return await self._load()
        except Failed as error:
            if self._has_state:
                raise
            log.error("starting from the replica of the site's state", error=str(error))
            return await self._replica.load()

    async def begin(self, edits: Sequence[Edit], revision: int) -> None:
        """Write `edits` inside an open transaction: durable only after `commit`."""
        if not self._has_state:
            await self._load()
            raise WriteConflict("write to the site's database", "it was away until now")
        with self._watched():
            await self._site.begin(edits, revision)
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
            self._behind = str(error)
            log.error("the replica of the site's state is behind", error=str(error))

    async def rollback(self) -> None:
        """Roll back the open transaction, if there is one."""
        await self._site.rollback()

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
        except WriteConflict:
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
            self._behind = ""
        except Failed as error:
            self._behind = str(error)
            log.error("the replica of the site's state is behind", error=str(error))
        return state

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
            raise Failed(
                "use the site's database",
                "it holds another configuration than this box: to take the site's over, back this"
                " box's up and remove its state.db",
            )
        return await self._site.load(), generation
