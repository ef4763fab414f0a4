"""A site gets another key: what a stolen box has opens nothing that is in the database then."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Iterator
from pathlib import Path

import pytest

from egressd.app import config, site_key
from egressd.app.site import store_of
from egressd.app.site_authority import SiteAuthority, new_request
from egressd.model.errors import Failed, WriteConflict
from egressd.model.site import LogEntry
from egressd.model.trial import ChangeTrial
from egressd.model.undo import reversals
from egressd.store.postgres.shared_access import (
    SharedAccessLink,
    SharedText,
    place_of_shared,
)
from egressd.store.postgres.site_link import SiteLink
from egressd.store.postgres.site_store import SiteStore
from egressd.store.sealing import SiteSeal
from tests.store.boxes import Box, Rig, joined, state_of
from tests.store.members import Member, paired
from tests.store.rig import SECRETS, logged, rules, write

pytestmark = pytest.mark.lab

SEALED = (
    ("config_json", "nodes", "nodes"),
    ("password", "lines", "lines"),
    ("secret", "lines", "lines"),
    ("password", "proxy_services", "services"),
    ("url", "alert_channels", "alert_channels"),
)
"""Column, table and place of each secret that `tests.store.rig.EVERYTHING` has."""

KEY = "SELECT key_id, key_envelope FROM member JOIN site ON site.id = site WHERE member.name = 'b'"
"""Asks for the site's key's id, and the envelope of the second member."""


@pytest.fixture
def box(rig: Rig) -> Box:
    """A second member, whose service has run."""
    return joined(rig)


def sealed_in(rig: Rig) -> Iterator[tuple[bytes, str]]:
    """Yield everything that is sealed in the database, each with its place."""
    for column, table, place in SEALED:
        for id_, text in rig.query(f"SELECT id, {column} FROM {table}"):
            yield base64.b64decode(text.removeprefix("sealed:1:")), f"{place}/{id_}/{column}"
    for id_, text in rig.query("SELECT id, encode(edits, 'hex') FROM edit_batch"):
        yield bytes.fromhex(text), f"edit_batch/{id_}/edits"
    for revision, text in rig.query("SELECT revision, encode(inverse, 'hex') FROM undo_log"):
        yield bytes.fromhex(text), f"undo_log/{revision}/inverse"
    for name, version, text in rig.query("SELECT name, version, value FROM shared_access"):
        sealed = base64.b64decode(text.removeprefix("sealed:1:"))
        yield sealed, place_of_shared(name, int(version))


def opens_all(rig: Rig, key: bytes) -> bool:
    """True if a key opens all that is sealed, and False if it opens none of it."""
    seal, opened = SiteSeal(key), []
    for sealed, place in sealed_in(rig):
        try:
            seal.open_bytes(sealed, place)
            opened.append(True)
        except ValueError:
            opened.append(False)
    assert len(opened) > len(SECRETS)
    assert len({*opened}) == 1
    return opened[0]


def test_a_stolen_key_opens_nothing(rig: Rig, box: Box) -> None:
    thief = joined(rig, "thief")
    stolen = site_key.read(thief.settings)
    rig.network.run_async(give_token, thief.settings)
    assert rig.query("SELECT name FROM shared_access") == [["token"]]
    state = asyncio.run(state_of(rig.a.settings))
    assert opens_all(rig, stolen)
    rig.a.run("remove", "thief", "--yes", "--is-off")
    assert "--yes must be given" in rig.a.refused("rotate-key")
    assert opens_all(rig, stolen)

    said = rig.a.run("rotate-key", "--yes")
    assert "the site home has another key" in said
    assert "b does not have it yet" in said
    assert "thief" not in said
    assert not opens_all(rig, stolen)
    assert opens_all(rig, site_key.read(rig.a.settings))
    with pytest.raises(AssertionError, match="not permitted to log in"):
        rig.network.run_async(state_of, thief.settings)

    assert site_key.read(box.settings) == stolen
    for member in (rig.a, box):
        found = rig.network.run_async(state_of, member.settings)
        assert (found.nodes, found.lines) == (state.nodes, state.lines)
        assert found.revision == state.revision + 1
    assert site_key.read(box.settings) == site_key.read(rig.a.settings)
    assert opens_all(rig, site_key.read(box.settings))
    joined(rig, "later")  # a box that joins is given the new one


async def give_token(settings: config.Config) -> None:
    """Put a token into the site's database."""
    link, seal = SharedAccessLink(settings.cluster.database), SiteSeal(site_key.read(settings))
    sealed = seal.close("secret", place_of_shared("token", 1))
    assert await link.put(SharedText("token", 1, sealed), after=0, key_id=seal.key_id)
    await link.close()


def site_store(settings: config.Config) -> SiteStore:
    store = store_of(settings)
    assert isinstance(store, SiteStore)
    return store


def test_a_member_that_was_off_takes_the_last_of_several_keys(rig: Rig, box: Box) -> None:
    first = site_key.read(box.settings)
    for _ in range(3):
        rig.a.run("rotate-key", "--yes")
    assert site_key.read(box.settings) == first
    state = rig.network.run_async(state_of, box.settings)
    assert site_key.read(box.settings) == site_key.read(rig.a.settings) != first
    assert state == asyncio.run(state_of(rig.a.settings))


def test_an_earlier_key_that_is_put_back_is_refused(rig: Rig, box: Box) -> None:
    rig.a.run("rotate-key", "--yes")
    rig.network.run_async(state_of, box.settings)
    ((id_, envelope),) = rig.query(KEY)
    rig.a.run("rotate-key", "--yes")
    rig.network.run_async(state_of, box.settings)
    ((now, newest),) = rig.query(KEY)
    put_back(rig, id_, envelope)
    try:
        with pytest.raises(AssertionError, match="does not replace this box's key"):
            rig.network.run_async(state_of, box.settings)
        assert SiteSeal(site_key.read(box.settings)).key_id == now
    finally:
        put_back(rig, now, newest)


def put_back(rig: Rig, key_id: str, envelope: str) -> None:
    rig.query(f"UPDATE site SET key_id = '{key_id}' RETURNING id")
    rig.query(f"UPDATE member SET key_envelope = '{envelope}' WHERE name = 'b' RETURNING id")


def test_a_writer_with_the_old_key_follows_first(rig: Rig, box: Box) -> None:
    rig.network.run_async(write_across, rig, box)


async def write_across(rig: Rig, box: Box) -> None:
    """Change the key while a store is open, and write by that store."""
    store = site_store(box.settings)
    await store.open()
    state = await store.load()
    edits, revision = rules(1, start=71), state.revision + 1
    await store.begin(edits, revision, logged(edits, state))
    await store.commit()
    trial = ChangeTrial(began_at=0, minutes=5, who="token", revision=revision)
    assert await store.begin_trial(trial, state)
    await asyncio.to_thread(rig.a.run, "rotate-key", "--yes")
    with pytest.raises(WriteConflict):
        await store.begin(rules(1, start=70), revision + 1)
    with pytest.raises(Failed, match="another key: try again"):
        await store.inverse(revision)
    assert await store.entries_after(revision) == [LogEntry(revision + 1, [])]
    assert await store.inverse(revision) == reversals(state, edits)
    first = await store.trial_state()
    assert first is not None
    assert state.edits_to(first) == []
    await store.end_trial()
    await write(store, rules(1, start=70), revision + 2)
    assert opens_all(rig, site_key.read(rig.a.settings))
    await store.close()


def test_members_keep_their_leases_while_the_key_changes(rig: Rig, box: Box) -> None:
    rig.network.run_async(rotate_under_changes, rig, box)


async def rotate_under_changes(rig: Rig, box: Box) -> None:
    """Change the key while both members make changes and let clients through."""
    a, b = (member_of(each.settings) for each in (rig.a, box))
    async with paired(a, b):
        rotating = asyncio.create_task(asyncio.to_thread(rig.a.run, "rotate-key", "--yes"))
        key = 100
        while not rotating.done() or key < 120:
            for member in (a, b):
                assert await member.put(key) == ()
                assert all((a.is_open, b.is_open))
                key += 1
        assert "does not have it" not in await rotating
        assert a.ledger.state == b.ledger.state
        assert len(a.ledger.state.rules) >= key - 100
        assert site_key.read(rig.a.settings) == site_key.read(box.settings)


def member_of(settings: config.Config) -> Member:
    link = SiteLink(settings.cluster.database, version="1")
    return Member(site_store(settings), link, Path(settings.api_data))


def test_a_member_without_a_certificate_is_named(rig: Rig, box: Box) -> None:
    certificate = rig.query("UPDATE member SET certificate = '' WHERE name = 'b' RETURNING name")
    assert certificate == [["b"]]
    before = opens_all(rig, site_key.read(rig.a.settings))
    said = rig.a.refused("rotate-key", "--yes")
    assert "the member b has no certificate: it must join anew" in said
    assert opens_all(rig, site_key.read(rig.a.settings)) == before


def test_only_the_box_with_the_authority_gives_another_key(rig: Rig, box: Box) -> None:
    said = box.refused("rotate-key", "--yes", "--owner", rig.server.conninfo("postgres"))
    assert "only the box where egressd cluster init was run" in said


def test_no_key_is_sealed_for_a_certificate_of_another_authority(rig: Rig, box: Box) -> None:
    """The administrator of the database puts a certificate of its own into a member's row."""
    ((role,),) = rig.query("SELECT role_name FROM member WHERE name = 'b'")
    forged = SiteAuthority.make("home").member(new_request()[1], role)
    rig.query(f"UPDATE member SET certificate = '{forged}' WHERE name = 'b' RETURNING id")
    before = opens_all(rig, site_key.read(rig.a.settings))
    assert "is not of the site's authority" in rig.a.refused("rotate-key", "--yes")
    others = SiteAuthority.of_folder(rig.a.folder / "cluster").member(new_request()[1], "other")
    rig.query(f"UPDATE member SET certificate = '{others}' WHERE name = 'b' RETURNING id")
    assert "is not of the site's authority" in rig.a.refused("rotate-key", "--yes")
    assert opens_all(rig, site_key.read(rig.a.settings)) == before
