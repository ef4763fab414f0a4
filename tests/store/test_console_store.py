"""The console's data: beside the state, in no backup, never delaying a change."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from egressd.model.console import ChangeRecord, Session
from egressd.model.desired import Edit
from egressd.model.errors import Failed
from egressd.model.nouns import Rule
from egressd.model.wording import say
from egressd.store.console import CHANGES_KEPT, ConsoleStore
from egressd.store.setup_code import SetupCode

if TYPE_CHECKING:
    from tests.store.rig import OpenDatabase


HASH = "$argon2id$the-hash"


def session(number: int) -> Session:
    return Session(
        key=f"digest-of-{number}",
        id=f"id{number}",
        source="192.0.2.7",
        agent="a browser",
        created_at=1000,
        seen_at=1000,
    )


def record(number: int) -> ChangeRecord:
    return ChangeRecord(
        at="2026-11-20T22:58:40Z",
        who="token",
        source="192.0.2.7",
        what="POST /svc/api/v1/rules",
        text=say("rule-deleted", ip=str(number)),
    )


@pytest.fixture
async def console(tmp_path: Path, opened: OpenDatabase) -> AsyncIterator[ConsoleStore]:
    async with opened(tmp_path / "data"):
        pass
    store = ConsoleStore(tmp_path / "data")
    yield store
    await store.close()


async def test_a_new_password_ends_every_other_session(console: ConsoleStore) -> None:
    assert await console.password() is None
    await console.add_session(session(1))
    await console.set_password(HASH, session(2))
    assert await console.password() == HASH
    assert await console.sessions() == [session(2)]
    await console.set_password("another", session(3))
    assert await console.password() == "another"
    assert await console.sessions() == [session(3)]


async def test_sessions_are_updated_and_deleted(console: ConsoleStore) -> None:
    for number in (1, 2, 3):
        await console.add_session(session(number))
    await console.touch_sessions({session(2).key: 2000, "unknown": 1})
    await console.drop_sessions([session(1).key, session(3).key])
    (left,) = await console.sessions()
    assert (left.id, left.seen_at) == ("id2", 2000)


@pytest.mark.slow
async def test_only_the_latest_changes_are_kept(console: ConsoleStore) -> None:
    await console.add_changes([record(n) for n in range(CHANGES_KEPT)])
    await console.add_changes([record(n) for n in range(CHANGES_KEPT, CHANGES_KEPT + 5)])
    found = await console.changes(CHANGES_KEPT * 2)
    assert [r.text for r in found[:2]] == [
        f"rule for {CHANGES_KEPT + 4} deleted",
        f"rule for {CHANGES_KEPT + 3} deleted",
    ]
    assert len(found) == CHANGES_KEPT
    assert found[-1].text == "rule for 5 deleted"
    assert (found[-1].text.code, found[-1].text.values) == ("rule-deleted", {"ip": "5"})


@pytest.mark.slow
async def test_console_data_is_in_no_backup(tmp_path: Path, opened: OpenDatabase) -> None:
    async with opened(tmp_path / "data") as database:
        console = ConsoleStore(tmp_path / "data")
        await console.set_password(HASH, session(1))
        await console.add_changes([record(1)])
        await database.begin([Edit("rules", 1, Rule(id=1, ip="10.0.0.1/32", target_node="hk"))], 1)
        await database.commit()
        await database.backup(tmp_path / "backup")
        await database.restore(await database.read_backup(tmp_path / "backup"))
        assert await console.password() == HASH
        assert await console.sessions() == [session(1)]
        await console.close()
    content = (tmp_path / "backup").read_bytes()
    assert b"10.0.0.1/32" in content
    for secret in (HASH, "digest-of-1", "a browser", "rule for 1"):
        assert secret.encode() not in content


async def test_console_writes_wait_for_a_change_and_are_not_lost(
    tmp_path: Path, opened: OpenDatabase
) -> None:
    async with opened(tmp_path / "data") as database:
        console = ConsoleStore(tmp_path / "data")
        await database.begin([Edit("rules", 1, Rule(id=1, ip="10.0.0.1/32", target_node="hk"))], 1)
        waiting = asyncio.create_task(console.add_session(session(1)))
        await asyncio.sleep(0.1)
        assert not waiting.done()
        await database.rollback()
        await waiting
        assert await console.sessions() == [session(1)]
        await console.close()


async def test_a_failed_call_raises_and_the_next_one_works(console: ConsoleStore) -> None:
    await console.add_session(session(1))
    with pytest.raises(Failed, match="store a session"):
        await console.add_session(session(1))
    assert await console.sessions() == [session(1)]


async def test_an_invalid_row_is_refused(console: ConsoleStore, tmp_path: Path) -> None:
    await console.add_session(session(1))
    with sqlite3.connect(tmp_path / "data" / "state.db") as other:
        other.execute("UPDATE sessions SET seen_at = 'soon'")
    other.close()
    with pytest.raises(Failed, match="read the sessions"):
        await console.sessions()


def test_a_setup_code_is_valid_until_it_is_used(tmp_path: Path) -> None:
    code = SetupCode(tmp_path)
    assert code.code() is None
    first = code.renew()
    assert code.code() == first
    assert (tmp_path / "setup-code").stat().st_mode & 0o777 == 0o600
    second = code.renew()
    assert first != second
    assert code.code() == second
    with suppress(LookupError), code.used_up():
        assert code.code() is None
        raise LookupError
    assert code.code() == second, "what was begun with it did not come to be"
    with code.used_up():
        assert code.code() is None
    assert code.code() is None
    assert [*tmp_path.iterdir()] == []
    (tmp_path / "setup-code").write_bytes(b"\xff\xfe\n")
    assert code.code() is None, "one that cannot be read counts no more"
