"""The texts that let users in, in a site's database."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from egressd.store.postgres.shared_access import SharedAccessLink, SharedText
from tests.store.rig import Site

pytestmark = pytest.mark.slow

TOKEN = SharedText("token", 1, "sealed")


@asynccontextmanager
async def linked(site: Site) -> AsyncIterator[SharedAccessLink]:
    link = SharedAccessLink(site.server.conninfo(site.role))
    try:
        yield link
    finally:
        await link.close()


async def test_another_member_reads_what_one_has_written(site: Site) -> None:
    other = site.second()
    async with linked(site) as a, linked(other) as b:
        assert await a.versions() == {}
        assert await a.put(TOKEN, after=0, key_id=site.seal.key_id)
        assert await b.versions() == {"token": 1}
        assert await b.read(["token", "none"]) == [TOKEN]
        assert await b.read([]) == []
        await b.drop(["token"])
        assert await a.versions() == {}


async def test_of_two_writers_one_is_refused(site: Site) -> None:
    other = site.second()
    async with linked(site) as a, linked(other) as b:
        key = site.seal.key_id
        assert await a.put(TOKEN, after=0, key_id=key)
        assert not await b.put(TOKEN._replace(value="b"), after=0, key_id=key)
        assert await b.put(SharedText("token", 2, "b"), after=1, key_id=key)
        assert not await a.put(SharedText("token", 2, "a"), after=1, key_id=key)
        assert await a.read(["token"]) == [SharedText("token", 2, "b")]


async def test_nothing_is_written_by_a_key_that_is_not_the_sites(site: Site) -> None:
    async with linked(site) as link:
        assert not await link.put(TOKEN, after=0, key_id="another")
        assert await link.versions() == {}


async def test_another_site_sees_nothing(site: Site) -> None:
    stranger = Site(site.server, f"{site.name}c")
    stranger.make()
    async with linked(site) as mine, linked(stranger) as theirs:
        assert await mine.put(TOKEN, after=0, key_id=site.seal.key_id)
        assert await theirs.versions() == {}
        await theirs.drop(["token"])
        assert await mine.versions() == {"token": 1}
