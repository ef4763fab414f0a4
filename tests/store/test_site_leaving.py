"""A member leaves its site: it keeps the configuration and no key, and informs the site."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path

import pytest

from egressd.app import config
from egressd.app.leaving import Leaving
from egressd.app.site import member_of, store_of
from egressd.store.postgres.site_store import SiteStore
from tests.store.boxes import WAIT_S, Rig, joined, state_of
from tests.store.rig import rules, write

pytestmark = pytest.mark.lab


async def told(folder: Path, says: str = "") -> str:
    """Tell the site that a box has left it; return the problem if it is one that `says` this."""
    leaving = Leaving(folder)
    assert leaving.is_due
    following = asyncio.create_task(leaving.follow())
    try:
        async with asyncio.timeout(WAIT_S):
            while (folder / "leaves-site").exists():
                problem = " ".join(map(str, leaving.problems()))
                if says and says in problem:
                    return problem
                await asyncio.sleep(0.02)
    finally:
        following.cancel()
    assert leaving.problems() == ()
    return ""


def test_a_box_that_leaves_keeps_the_configuration_and_no_key(rig: Rig) -> None:
    box = joined(rig)
    site = asyncio.run(state_of(rig.a.settings))
    before = box.file.read_text()
    assert "--yes must be given" in box.refused("leave", "--write")
    assert box.file.read_text() == before
    assert "restart the service" in box.run("leave", "--write", "--yes")
    assert box.settings.cluster.database == ""
    rig.network.run_async(told, box.data)
    assert {*box.files()} & {"api/site-key", "api/member-key.pem", "api/site-gated"} == set()
    assert asyncio.run(state_of(box.settings)) == site
    ((role, is_revoked),) = rig.query("SELECT role_name, is_revoked FROM member WHERE name = 'b'")
    assert is_revoked == "t"
    assert [role, "f"] in rig.at_site()[1]
    # It may come again, as another member: its configuration is given up then.
    box.configure('[cluster]\nmember = "c"\n')
    with rig.invitation() as (token, inviting):
        box.run("join", "--write", "--yes", given=token)
        assert inviting.wait(WAIT_S) == 0
    assert rig.network.run_async(state_of, box.settings) == site


def test_a_box_without_the_newest_change_does_not_leave(rig: Rig) -> None:
    box = rig.box()
    with rig.invitation() as (token, inviting):
        box.run("join", "--write", given=token)
        assert inviting.wait(WAIT_S) == 0
    assert "has not run since this box joined" in box.refused("leave", "--yes")
    rig.network.run_async(state_of, box.settings)
    asyncio.run(change_at(rig.a.settings))
    before = box.files()
    assert "the site is at revision 2, and this box's replica at 1" in box.refused("leave", "--yes")
    assert box.files() == before
    rig.network.run_async(state_of, box.settings)
    said = box.run("leave", "--yes")
    assert "remove the section [cluster]" in said
    # The section is there yet, so that the next start is a member's.
    assert box.settings.cluster.site == "home"
    member_of(box.settings, store_of(box.settings), no_lease)
    assert not (box.data / "leaves-site").exists()
    assert rig.query("SELECT is_revoked FROM member WHERE name = 'b'") == [["f"]]


async def change_at(settings: config.Config) -> None:
    """Make a change at the site."""
    store = store_of(settings)
    assert isinstance(store, SiteStore)
    await store.open()
    state = await store.load()
    await write(store, rules(1, start=50), state.revision + 1)
    await store.close()


async def no_lease(_until_ms: int) -> None:
    raise AssertionError("no lease is renewed")


def test_a_site_that_is_away_is_informed_later(rig: Rig) -> None:
    box = joined(rig)
    rig.server.stop()
    try:
        assert "the site counts it as a member" in box.run("leave", "--write", "--yes")
        told_ = partial(told, says="does not know yet that this box has left")
        assert rig.network.run_async(told_, box.data)
    finally:
        rig.server.start("listen_addresses=127.0.0.1")
    assert (box.data / "site-key").exists()
    rig.network.run_async(told, box.data)
    assert rig.query("SELECT is_revoked FROM member WHERE name = 'b'") == [["t"]]


def test_a_box_that_was_removed_leaves_without_a_word(rig: Rig) -> None:
    box = joined(rig)
    box.run("leave", "--write", "--yes")
    rig.a.run("remove", "b", "--yes")
    rig.network.run_async(told, box.data)
    assert not (box.data / "site-key").exists()
