"""Scoped tokens on disk: beside the state, in no backup, seldom written."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest

from egressd.model.tokens import ScopedToken
from egressd.service.tokens import STORE_EVERY_S, Tokens
from egressd.store.beside import ConnectionBeside
from egressd.store.scoped_tokens import ScopedTokenStore

if TYPE_CHECKING:
    from tests.store.rig import OpenDatabase


def token(number: int) -> ScopedToken:
    return ScopedToken(
        id=f"id{number}",
        name=f"name {number}",
        digest=f"digest {number}",
        scopes=("read", "rotate:Group_东京"),
        created_at=1000,
        created_by="session 1f2e3d4c",
        expires_at=0,
    )


@pytest.fixture
async def store(tmp_path: Path, opened: OpenDatabase) -> AsyncIterator[ScopedTokenStore]:
    async with opened(tmp_path / "data"):
        pass
    beside = ConnectionBeside(tmp_path / "data")
    yield ScopedTokenStore(beside)
    await beside.close()


async def test_tokens_are_stored_replaced_and_deleted(store: ScopedTokenStore) -> None:
    await store.put_tokens([token(1), token(2), token(3)])
    used = msgspec.structs.replace(token(2), last_used_at=2000)
    await store.put_tokens([used])
    await store.drop_tokens(["id1", "unknown"])
    found = {each.id: each for each in await store.tokens()}
    assert found == {"id2": used, "id3": token(3)}


async def test_a_token_outlives_a_restart_with_its_last_use(store: ScopedTokenStore) -> None:
    now = 5000.0
    tokens = Tokens(store, lambda: now)
    await tokens.open()
    secret, made = await tokens.create("a", ["read"], None, "token")
    now += STORE_EVERY_S - 1
    assert tokens.find(secret.encode()) is not None
    await tokens.close()
    again = Tokens(store, lambda: now)
    await again.open()
    caller = again.find(secret.encode())
    assert caller is not None
    assert caller.may("read")
    assert not caller.may("write")
    assert again.get(made.id).last_used_at == 5000 + STORE_EVERY_S - 1
    assert again.find(secret.encode()[:-1]) is None


async def test_a_deleted_token_stays_deleted(store: ScopedTokenStore) -> None:
    tokens = Tokens(store, lambda: 5000.0)
    secret, made = await tokens.create("a", ["read"], None, "token")
    await tokens.delete(made.id)
    again = Tokens(store, lambda: 5000.0)
    await again.open()
    assert again.find(secret.encode()) is None
    assert await store.tokens() == []


async def test_backups_hold_no_token(
    tmp_path: Path, opened: OpenDatabase, store: ScopedTokenStore
) -> None:
    await store.put_tokens([token(1)])
    async with opened(tmp_path / "data") as database:
        await database.backup(tmp_path / "backup")
    assert b"digest 1" not in (tmp_path / "backup").read_bytes()
    assert await store.tokens() == [token(1)]
