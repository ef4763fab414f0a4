"""Scoped tokens at several members, over a database of texts."""

from __future__ import annotations

from pathlib import Path

import pytest

from egressd.model.errors import Failed
from egressd.model.times import utc_text
from tests.app.site_members import Member, Texts, in_turns

DAY_S = 86_400


@pytest.fixture
def texts() -> Texts:
    return Texts()


@pytest.fixture
async def pair(texts: Texts, tmp_path: Path) -> tuple[Member, Member]:
    made = Member(texts, tmp_path / "a", "of a"), Member(texts, tmp_path / "b", "of b")
    await in_turns(made)
    return made


async def make(member: Member, name: str = "a") -> tuple[str, str]:
    """Return a new token's secret and id."""
    secret, token = await member.tokens.create(name, ["read"], None, "token")
    return secret, token.id


def counts(member: Member, secret: str) -> bool:
    return member.tokens.find(secret.encode()) is not None


async def restarted(member: Member) -> None:
    member.restart()
    await member.tokens.open()


async def test_a_token_counts_at_all_members(pair: tuple[Member, Member], texts: Texts) -> None:
    a, b = pair
    of_a, _ = await make(a)
    of_b, _ = await make(b, "b")
    await in_turns(pair)
    assert [counts(member, secret) for member in pair for secret in (of_a, of_b)] == [True] * 4
    assert a.tokens.list() == b.tokens.list()
    for row in texts.rows.values():
        assert "read" not in row.value
    await restarted(b)
    assert counts(b, of_a)


async def test_a_token_is_deleted_at_all_members(pair: tuple[Member, Member]) -> None:
    a, b = pair
    secret, id_ = await make(a)
    kept, _ = await make(a, "kept")
    await in_turns(pair)
    await b.tokens.delete(id_)
    await in_turns(reversed(pair))
    for member in pair:
        assert not counts(member, secret)
        await restarted(member)
    await in_turns(pair)
    for member in pair:
        assert not counts(member, secret)
        assert counts(member, kept)


async def test_a_token_that_was_used_meanwhile_stays_deleted(pair: tuple[Member, Member]) -> None:
    a, b = pair
    secret, id_ = await make(a)
    await in_turns(pair)
    await a.tokens.delete(id_)
    b.now += DAY_S
    assert counts(b, secret)
    await b.look()
    await in_turns(pair)
    assert [counts(member, secret) for member in pair] == [False, False]
    await in_turns(reversed(pair))
    assert [counts(member, secret) for member in pair] == [False, False]


async def test_a_token_that_is_deleted_without_the_database_stays_deleted(
    pair: tuple[Member, Member], texts: Texts, monkeypatch: pytest.MonkeyPatch
) -> None:
    a = pair[0]
    secret, id_ = await make(a)
    await in_turns(pair)

    async def away() -> dict[str, int]:
        raise Failed("use the site's database", "it is away")

    await a.tokens.delete(id_)
    with monkeypatch.context() as patched:
        patched.setattr(texts, "versions", away)
        with pytest.raises(Failed):
            await a.look()
    await restarted(a)
    await in_turns(pair)
    assert [counts(member, secret) for member in pair] == [False, False]


async def test_an_older_database_neither_loses_nor_revives_a_token(
    pair: tuple[Member, Member], texts: Texts
) -> None:
    a, b = pair
    gone, id_ = await make(a, "gone")
    await in_turns(pair)
    older = dict(texts.rows)
    await a.tokens.delete(id_)
    kept, _ = await make(b, "kept")
    await in_turns(pair)
    for rows in (older, {}):
        texts.rows = dict(rows)
        await in_turns(reversed(pair))
        await in_turns(pair)
        for member in pair:
            assert counts(member, kept)
            assert not counts(member, gone)


async def test_the_last_use_is_the_latest_of_all_members(
    pair: tuple[Member, Member], texts: Texts
) -> None:
    a, b = pair
    secret, id_ = await make(a)
    await in_turns(pair)
    for _ in range(3):
        for member in pair:
            member.now += 200
        assert counts(b, secret)
        await in_turns(pair)
    assert a.tokens.get(id_).last_used_at >= b.now - 300
    assert texts.rows[f"scoped-token/{id_}"].version == a.tokens.get(id_).last_used_at


async def test_a_use_is_seldom_written(pair: tuple[Member, Member], texts: Texts) -> None:
    a, _ = pair
    secret, id_ = await make(a)
    await in_turns(pair)
    versions = set()
    for _ in range(60):
        a.now += 10
        assert counts(a, secret)
        await in_turns(pair)
        versions.add(texts.rows[f"scoped-token/{id_}"].version)
    assert len(versions) <= 4


async def test_a_box_that_joins_leaves_its_own_tokens_behind(texts: Texts, tmp_path: Path) -> None:
    a, b = Member(texts, tmp_path / "a", "of a"), Member(texts, tmp_path / "b", "of b")
    of_a, _ = await make(a)
    of_b, _ = await make(b)
    await in_turns([a])
    assert counts(a, of_a)
    await in_turns([b, a])
    for member in (a, b):
        assert counts(member, of_a)
        assert not counts(member, of_b)
    await restarted(b)
    assert not counts(b, of_b)


async def test_deletions_that_are_long_past_are_forgotten(
    pair: tuple[Member, Member], texts: Texts
) -> None:
    a, b = pair
    _, id_ = await make(a)
    await in_turns(pair)
    await a.tokens.delete(id_)
    await in_turns(pair)
    assert f"scoped-token/{id_}" in texts.rows
    a.now += 401 * DAY_S
    b.now = a.now
    await in_turns(pair)
    assert set(texts.rows) == {"item"}


async def test_an_expired_token_counts_at_no_member(pair: tuple[Member, Member]) -> None:
    a, b = pair
    secret, token = await a.tokens.create("a", ["read"], a.now + 60, "token")
    await in_turns(pair)
    assert counts(b, secret)
    b.now += 60
    assert not counts(b, secret)
    assert b.tokens.is_expired(b.tokens.get(token.id))
    assert utc_text(token.expires_at) == utc_text(b.now)
