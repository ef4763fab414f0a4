"""The site's database: whose it is, what it tells, and what becomes of a COMMIT."""

from __future__ import annotations

import asyncio
import itertools
import subprocess
import uuid
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from egressd.model.desired import DesiredState
from egressd.model.errors import Failed, Unconfirmed, WriteConflict
from egressd.model.site import StatePoint
from egressd.store import schema
from egressd.store.migrating import Migrations
from egressd.store.postgres.connection import NEWEST, check_conninfo
from egressd.store.postgres.schema import SCRIPTS, add_member, migrate, revoke_member
from egressd.store.sealing import KEY_BYTES, SiteSeal
from tests.store.lossy_proxy import lossy_proxy
from tests.store.rig import EVERYTHING, LINE, SECRETS, Site, rules, standby_away, write
from tests.support.postgres import OWNER, PROGRAMS, Server

pytestmark = pytest.mark.slow

TABLES = [table for table in schema.metadata.sorted_tables if table not in schema.PRIVATE]


EMPTY = DesiredState()


async def founded(site: Site, state: DesiredState = EMPTY) -> None:
    database = site.database()
    await database.open()
    await database.found(state, "generation")
    await database.close()


def test_the_newest_schema_is_the_one_in_use() -> None:
    assert Migrations(SCRIPTS).newest == NEWEST


def test_the_tables_have_the_columns_of_the_replica(site: Site) -> None:
    for table in TABLES:
        columns = site.server.query(
            "SELECT column_name FROM information_schema.columns"
            f" WHERE table_name = '{table.name}' AND column_name <> 'site'"
        )
        assert {name for (name,) in columns} == {column.name for column in table.columns}


def test_to_migrate_again_changes_nothing(site: Site) -> None:
    migrate(site.server.conninfo(OWNER))
    site.make()


async def test_a_whole_state_is_the_first_of_a_site(site: Site) -> None:
    state = DesiredState().with_edits(EVERYTHING, 7)
    await founded(site, state)
    database = site.database()
    await database.open()
    assert await database.load() == state
    assert await database.generation() == "generation"
    await database.close()


async def test_a_member_sees_and_writes_its_own_site_alone(site: Site) -> None:
    other = Site(site.server, f"{site.name}b")
    other.make()
    for each, revision in ((site, 3), (other, 8)):
        await founded(each, DesiredState().with_edits(EVERYTHING, revision))
    for table in (*(table.name for table in TABLES), "site", "member"):
        column = "id" if table == "site" else "site"
        seen = site.server.query(f"SELECT DISTINCT {column} FROM {table}", site.role)
        assert len(seen) == 1
    for statement in (
        "INSERT INTO numbers (site, name, number) SELECT max(id) + 1, 'x', 1 FROM site",
        f"UPDATE member SET site = site + 1 WHERE role_name = '{site.role}'",
        "CREATE TABLE mine ()",
        "DROP TABLE nodes",
    ):
        with pytest.raises(AssertionError, match=r"row-level security|permission denied|owner"):
            site.server.query(statement, site.role)
    for row in (
        "beat (site, member, n, applied, is_fenced) SELECT {}, id, 1, 1, false",
        "edit_batch (site, id, format, edits) SELECT {}, gen_random_uuid(), 1, 'x'",
        "shared_access (site, name, version, value) SELECT {}, 'x', 1, 'x'",
        "undo_log (site, revision, at, who, source, what, text, format, size)"
        " SELECT {}, 1, '', '', '', '', '', 1, 0",
        "trial (site, id, began_at, minutes, who, revision, format, state)"
        " SELECT {}, 0, 0, 1, '', 1, 1, 'x'",
    ):
        table = row.split()[0]
        site.server.query(f"INSERT INTO {row.format('site')} FROM member", site.role)
        with pytest.raises(AssertionError, match="row-level security"):
            site.server.query(f"INSERT INTO {row.format('site + 1')} FROM member", site.role)
        own, others = (
            {row[0] for row in site.server.query(f"SELECT site FROM {table}", role)}
            for role in (site.role, other.role)
        )
        assert len(own) == 1
        assert not own & others
    site.server.query("DELETE FROM rules", site.role)
    assert len(site.server.query("SELECT 1 FROM rules", other.role)) == 1


def test_a_member_says_of_itself_alone(site: Site) -> None:
    add_member(
        site.server.conninfo(OWNER),
        site=site.name,
        key_id=site.seal.key_id,
        member="b",
        role=f"{site.role}_b",
    )
    site.server.query("UPDATE member SET version = '9', format_max = 9", site.role)
    rows = site.server.query("SELECT name, version FROM member ORDER BY name", site.role)
    assert rows == [["a", "9"], ["b", ""]]
    with pytest.raises(AssertionError, match="permission denied"):
        site.server.query("UPDATE member SET is_revoked = false", site.role)


async def test_a_revoked_member_is_out_at_once(site: Site) -> None:
    await founded(site, DesiredState().with_edits(EVERYTHING, 1))
    database = site.database()
    await database.open()
    revoke_member(site.server.conninfo(OWNER), site=site.name, member="a", is_off=True)
    with pytest.raises(Failed):
        await write(database, rules(1), 2)
    assert "not permitted to log in" in await opening(site)
    await database.close()
    with pytest.raises(Failed, match="no such member"):
        revoke_member(site.server.conninfo(OWNER), site=site.name, member="c")


def dump_of(server: Server) -> str:
    argv = [str(PROGRAMS[-1] / "pg_dump"), "-d", server.conninfo(OWNER)]
    return subprocess.run(argv, capture_output=True, check=True, text=True).stdout


async def test_no_secret_is_in_the_database(site: Site) -> None:
    await founded(site, DesiredState().with_edits(EVERYTHING, 1))
    dump = await asyncio.to_thread(dump_of, site.server)
    assert LINE.server in dump
    for secret in SECRETS:
        assert secret not in dump


async def test_a_secret_of_another_row_is_not_opened(site: Site) -> None:
    await founded(site, DesiredState().with_edits(EVERYTHING, 1))
    site.server.query("UPDATE lines SET secret = password", site.role)
    database = site.database()
    await database.open()
    with pytest.raises(Failed, match="lines/3/secret was not sealed with the site's key"):
        await database.load()
    await database.close()


async def opening(site: Site, conninfo: str = "", seal: SiteSeal | None = None) -> str:
    """Return why the site's database is not opened."""
    used = Site(site.server, site.name)
    used.seal = seal or site.seal
    database = used.database(conninfo)
    with pytest.raises(Failed) as error:
        await database.open()
    await database.close()
    return str(error.value)


async def test_a_database_that_does_not_fit_is_refused(site: Site) -> None:
    server = site.server
    other = Site(server, f"{site.name}b")
    other.make()
    assert "another key than the site's" in await opening(site, seal=SiteSeal(bytes(KEY_BYTES)))
    assert f"a member of the site {other.name}" in await opening(site, server.conninfo(other.role))
    assert "belongs to no member" in await opening(site, server.conninfo(OWNER))
    read_only = f"{server.conninfo(site.role)} options='-c default_transaction_read_only=on'"
    assert "read-only" in await opening(site, f"{read_only} target_session_attrs=any")
    server.query("CREATE DATABASE empty")
    empty = server.conninfo(site.role).replace("dbname=postgres", "dbname=empty")
    assert "run egressd cluster init" in await opening(site, empty)
    assert "No such file" in await opening(site, f"host={server.folder}/none user=x")
    server.query(f"UPDATE member SET is_revoked = true WHERE role_name = '{site.role}'")
    assert "belongs to no member" in await opening(site)


@pytest.mark.parametrize(
    ("column", "told"),
    [("alembic_version SET version_num", "older"), ("schema_reader SET min_reader", "newer")],
)
async def test_another_schema_is_refused(site: Site, column: str, told: str) -> None:
    value = "'p0000'" if told == "older" else "'p9999'"
    site.server.query(f"UPDATE {column} = {value}")
    try:
        assert told in await opening(site)
    finally:
        site.server.query(f"UPDATE {column} = '{NEWEST}'")


def test_a_site_with_another_key_is_not_joined(site: Site) -> None:
    for site_name, key, member, fault in (
        (site.name, "another", "b", "another key"),
        (f"{site.name}c", site.seal.key_id, "a", f"that of the member a of the site {site.name}"),
    ):
        with pytest.raises(Failed, match=fault):
            add_member(
                site.server.conninfo(OWNER),
                site=site_name,
                key_id=key,
                member=member,
                role=site.role,
            )


def test_a_text_that_is_no_connection_string_is_refused() -> None:
    with pytest.raises(Exception, match=r"cluster\.database: .*missing"):
        check_conninfo("nonsense")


async def test_a_commit_whose_answer_is_lost_is_found_out(site: Site, tmp_path: Path) -> None:
    await founded(site)
    with lossy_proxy(site.server, tmp_path) as proxy:
        database = site.database(f"host={tmp_path} user={site.role} dbname=postgres")
        await database.open()
        await database.begin(EVERYTHING, 1)
        proxy.cut_at = b"COMMIT"
        await database.commit()
        assert await database.load() == DesiredState().with_edits(EVERYTHING, 1)
        await database.close()


async def test_a_write_that_the_server_ended_fails(site: Site) -> None:
    await founded(site)
    database = site.database()
    await database.open()
    await database.begin(EVERYTHING, 1)
    site.server.query(
        f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = '{site.role}'"
    )
    with pytest.raises(Failed) as error:
        await database.commit()
    assert not isinstance(error.value, Unconfirmed)
    assert await database.load() == DesiredState()
    await write(database, EVERYTHING, 1)
    await database.close()


@pytest.mark.parametrize("end", ["stop", "kill"])
async def test_a_change_after_a_restart_of_the_server_succeeds(site: Site, end: str) -> None:
    """Nothing used the connection meanwhile."""
    await founded(site)
    database = site.database()
    await database.open()
    for revision in range(1, 3):
        await asyncio.to_thread(getattr(site.server, end))
        await asyncio.to_thread(site.server.start)
        await write(database, rules(1, start=revision), revision)
    assert set((await database.load()).rules) == {1, 2}
    await database.close()


@pytest.fixture
def alone(site: Site) -> Iterator[Site]:
    """A site whose server waits for a standby that is not there."""
    asyncio.run(founded(site))
    with standby_away(site):
        yield site


def waiting(site: Site) -> str:
    """Return the process that waits for a standby; empty if none does."""
    rows = site.server.query(
        f"SELECT pid FROM pg_stat_activity WHERE usename = '{site.role}' AND wait_event = 'SyncRep'"
    )
    return rows[0][0] if rows else ""


@pytest.mark.parametrize(
    ("end", "reason"),
    [
        ("pg_cancel_backend", "canceling wait for synchronous replication"),
        ("pg_terminate_backend", "server closed the connection"),
    ],
)
async def test_a_commit_that_one_server_alone_has_is_unconfirmed(
    alone: Site, end: str, reason: str
) -> None:
    database = alone.database()
    await database.open()
    await database.begin(EVERYTHING, 1)
    commit = asyncio.create_task(database.commit())
    while not (process := await asyncio.to_thread(waiting, alone)):
        assert not commit.done()
    await asyncio.to_thread(alone.server.query, f"SELECT {end}({process})")
    with pytest.raises(Unconfirmed, match=reason):
        await commit
    await database.close()


async def test_a_commit_that_waits_too_long_is_unconfirmed(alone: Site) -> None:
    database = alone.database(commit_s=0.5, inquiry_s=0.5)
    await database.open()
    await database.begin(EVERYTHING, 1)
    with pytest.raises(Unconfirmed):
        await database.commit()
    await database.close()


async def test_nothing_acknowledged_is_lost_when_the_server_is_killed(site: Site) -> None:
    """The server is killed while one change after another is written, and started again."""
    await founded(site)
    database = site.database()
    await database.open()
    acknowledged = 0
    for kill in range(5):
        ending = asyncio.create_task(_killed_after(site.server, acknowledged + 20))
        with suppress(Failed):
            for revision in itertools.count(acknowledged + 1):
                await write(database, rules(1, start=revision), revision)
                acknowledged = revision
                if ending.done():
                    break  # the change that the kill met was found to be stored
        await ending
        state = await database.load()
        assert set(range(1, acknowledged + 1)) <= set(state.rules), f"kill {kill}"
        assert state.revision in (acknowledged, acknowledged + 1)
        acknowledged = state.revision
    await database.close()


async def _killed_after(server: Server, revision: int) -> None:
    def stored() -> int:
        return int(server.query("SELECT max(revision) FROM meta")[0][0])

    while await asyncio.to_thread(stored) < revision:
        pass
    await asyncio.to_thread(server.kill)
    await asyncio.to_thread(server.start)


async def test_writers_exclude_each_other(site: Site) -> None:
    """Two members' changes: each is written once, in one order, and none is lost."""
    await founded(site)

    async def writes(member: int) -> None:
        database = site.database()
        await database.open()
        for number in range(50):
            while True:
                state = await database.load()
                with suppress(WriteConflict):
                    edits = rules(1, start=1 + number * 2 + member)
                    await write(database, edits, state.revision + 1)
                    break
        await database.close()

    await asyncio.gather(writes(0), writes(1))
    database = site.database()
    await database.open()
    state = await database.load()
    assert state.revision == 100
    assert set(state.rules) == set(range(1, 101))
    await database.close()


def test_a_member_keeps_its_role(site: Site) -> None:
    with pytest.raises(Failed, match=f"the role {site.role} is that of the member a"):
        add_member(
            site.server.conninfo(OWNER),
            site=site.name,
            key_id=site.seal.key_id,
            member="a",
            role=f"{site.role}_other",
        )


async def test_a_role_that_is_not_kept_to_its_site_is_refused(site: Site) -> None:
    site.server.query(f'ALTER ROLE "{site.role}" BYPASSRLS')
    database = site.database()
    with pytest.raises(Failed, match="not kept to its site"):
        await database.open()
    await database.close()


async def test_a_transaction_id_that_a_successor_gave_to_another_is_no_commit(site: Site) -> None:
    await founded(site)
    database = site.database()
    await database.open()
    await write(database, rules(1), 1)
    await database._do(lambda: database._find_out("no answer"))
    database._written = StatePoint(1, str(uuid.uuid4()))
    with pytest.raises(Failed, match="no answer"):
        await database._do(lambda: database._find_out("no answer"))
    await database.close()
