"""A member of a site: the site's database has the state, and the replica is for when it is away."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from egressd.model.desired import DesiredState
from egressd.model.errors import Failed, WriteConflict
from egressd.store.database import Database
from egressd.store.postgres.site_store import SiteStore
from tests.store.rig import EVERYTHING, OpenDatabase, Site, rules, write

pytestmark = pytest.mark.slow


@asynccontextmanager
async def member(site: Site, folder: Path) -> AsyncIterator[SiteStore]:
    store = site.store(folder)
    await store.open()
    try:
        yield store
    finally:
        await store.close()


def codes(store: SiteStore) -> list[str]:
    return [problem.code for problem in store.problems()]


async def test_a_new_site_has_the_state_of_its_first_member(
    site: Site, tmp_path: Path, opened: OpenDatabase
) -> None:
    async with opened(tmp_path) as database:
        await write(database, EVERYTHING, 1)
        before = await database.load()
    async with member(site, tmp_path) as store:
        assert await store.load() == before
        await write(store, rules(3, start=10), 2)
        after = await store.load()
    assert after == before.with_edits(rules(3, start=10), 2)
    async with member(site, tmp_path / "new") as store:
        assert await store.load() == after
    for folder in (tmp_path, tmp_path / "new"):
        async with opened(folder) as replica:
            assert await replica.load() == after


async def test_the_replica_has_what_was_acknowledged(
    site: Site, tmp_path: Path, opened: OpenDatabase
) -> None:
    async with member(site, tmp_path) as store:
        await store.load()
        await write(store, EVERYTHING, 1)
        async with opened(tmp_path) as replica:
            assert await replica.load() == DesiredState().with_edits(EVERYTHING, 1)


async def test_without_the_database_a_member_starts_from_its_replica(
    site: Site, tmp_path: Path
) -> None:
    async with member(site, tmp_path) as store:
        await store.load()
        await write(store, EVERYTHING, 1)
    site.server.stop()
    try:
        async with member(site, tmp_path) as store:
            assert await store.load() == DesiredState().with_edits(EVERYTHING, 1)
            assert codes(store) == ["site-away"]
            with pytest.raises(Failed) as error:
                await store.begin(rules(1, start=9), 2)
            assert not isinstance(error.value, WriteConflict)
            await store.backup(tmp_path / "backup")
            assert not await store.has_returned()
            site.server.start()
            assert await store.has_returned()
            with pytest.raises(WriteConflict):  # it may hold another state by now
                await store.begin(rules(1, start=9), 2)
            await store.load()
            await write(store, rules(1, start=9), 2)
            assert codes(store) == []
    finally:
        site.server.start()


async def test_a_change_fails_while_the_database_is_away(site: Site, tmp_path: Path) -> None:
    async with member(site, tmp_path) as store:
        before = await store.load()
        site.server.stop()
        try:
            with pytest.raises(Failed):
                await write(store, EVERYTHING, 1)
            assert codes(store) == ["site-away"]
        finally:
            site.server.start()
        assert await store.load() == before
        await write(store, EVERYTHING, 1)
        assert codes(store) == []


async def test_a_replica_on_a_full_disk_is_reported_and_written_later(
    site: Site, tmp_path: Path, opened: OpenDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with member(site, tmp_path) as store:
        await store.load()
        with monkeypatch.context() as patch:
            patch.setattr(Database, "begin", full)
            patch.setattr(Database, "found", full)
            await write(store, EVERYTHING, 1)
            assert codes(store) == ["site-replica-behind"]
            with pytest.raises(Failed, match="the replica is behind"):
                await store.backup(tmp_path / "backup")
        await write(store, rules(2, start=20), 2)
        assert codes(store) == []
        wanted = await store.load()
    async with opened(tmp_path) as replica:
        assert await replica.load() == wanted


async def full(*_: object) -> None:
    raise Failed("write to the database", "database or disk is full")


async def test_the_configuration_of_another_box_is_not_overwritten(
    site: Site, tmp_path: Path, opened: OpenDatabase
) -> None:
    async with member(site, tmp_path / "first") as store:
        await store.load()
        await write(store, EVERYTHING, 1)
    async with opened(tmp_path / "second") as database:
        await write(database, rules(5), 1)
        own = await database.load()
    async with member(site, tmp_path / "second") as store:
        assert await store.load() == own
        assert codes(store) == ["site-away"]
        with pytest.raises(Failed, match="another configuration than this box"):
            await store.begin(rules(1, start=9), 2)
    async with member(site, tmp_path / "first") as store:
        assert await store.load() == DesiredState().with_edits(EVERYTHING, 1)


async def test_a_backup_of_a_site_is_restored_on_a_box_of_its_own(
    site: Site, tmp_path: Path, opened: OpenDatabase
) -> None:
    async with member(site, tmp_path / "member") as store:
        await store.load()
        await write(store, EVERYTHING, 1)
        await store.backup(tmp_path / "backup")
    async with opened(tmp_path / "alone") as database:
        await database.restore(await database.read_backup(tmp_path / "backup"))
        restored = await database.load()
    wanted = DesiredState().with_edits(EVERYTHING, 1)
    assert restored.rules == wanted.rules
    assert restored.lines == wanted.lines


async def test_a_replica_that_lacks_a_change_is_not_started_from(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with member(site, tmp_path) as store:
        await store.load()
        with monkeypatch.context() as patch:
            patch.setattr(Database, "begin", full)
            patch.setattr(Database, "found", full)
            await write(store, EVERYTHING, 1)
    site.server.stop()
    try:
        async with member(site, tmp_path) as store:
            with pytest.raises(Failed, match="lacks acknowledged changes"):
                await store.load()
    finally:
        site.server.start()
    async with member(site, tmp_path) as store:
        assert await store.load() == DesiredState().with_edits(EVERYTHING, 1)
    site.server.stop()
    try:
        async with member(site, tmp_path) as store:
            assert await store.load() == DesiredState().with_edits(EVERYTHING, 1)
    finally:
        site.server.start()


async def test_an_older_copy_of_the_database_is_refused(site: Site, tmp_path: Path) -> None:
    async with member(site, tmp_path) as store:
        await store.load()
        await write(store, EVERYTHING, 1)
    site.server.query("DELETE FROM rules; UPDATE meta SET revision = 0", site.role)
    async with member(site, tmp_path) as store:
        assert await store.load() == DesiredState().with_edits(EVERYTHING, 1)
        assert codes(store) == ["site-away"]
        with pytest.raises(Failed, match="an older copy"):
            await store.begin(rules(1), 2)
