"""A writer that is gone without a word keeps no other one from writing."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Iterator

import pytest
from sqlalchemy import text

from egressd.model.desired import DesiredState
from egressd.store.postgres.connection import IDLE_MS, engine_on
from tests.store.rig import Site, rules, write
from tests.support import postgres
from tests.support.needs import Need
from tests.support.netns import Namespace

pytestmark = pytest.mark.lab

SILENCE = """
table inet silence {
  chain input { type filter hook input priority 0; tcp sport 5432 drop; tcp dport 5432 drop; }
}
"""
"""nftables' text that has a connection by TCP end without a word for either side."""


@pytest.fixture
def distant(namespaces: None, need: Need) -> Iterator[tuple[Site, Namespace]]:
    """A site, and the namespace in which its server is reached by TCP."""
    need("the package postgresql", bool(postgres.PROGRAMS))
    with (
        Namespace() as namespace,
        postgres.server(namespace.path, "listen_addresses=127.0.0.1") as server,
    ):
        site = Site(server, "distant")
        site.make()
        yield site, namespace


def by_tcp(site: Site) -> str:
    return f"host=127.0.0.1 user={site.role} dbname=postgres sslmode=disable"


async def vanish_in_a_change(site: Site) -> int:
    """Write from another connection after one that is gone in a change; return the revision."""
    near, far = site.database(), site.database(by_tcp(site))
    await near.open()
    await near.found(DesiredState(), "generation")
    await far.open()
    await far.load()
    await far.begin(rules(1), 1)
    await asyncio.to_thread(
        subprocess.run, ["nft", "-f", "-"], input=SILENCE, text=True, check=True
    )
    await write(near, rules(1, start=2), 1)
    return (await near.load()).revision


def test_a_writer_that_vanishes_blocks_no_other_one(distant: tuple[Site, Namespace]) -> None:
    """The server's own time-out ends a statement that waits for longer."""
    site, namespace = distant
    assert namespace.run_async(vanish_in_a_change, site) == 1


def session(site: Site) -> list[str]:
    names = ("tcp_keepalives_idle", "tcp_user_timeout", "idle_in_transaction_session_timeout")
    with engine_on(by_tcp(site)).connect() as connection:
        return [connection.execute(text(f"SHOW {name}")).scalar_one() for name in names]


def test_the_server_ends_a_session_that_is_gone(distant: tuple[Site, Namespace]) -> None:
    site, namespace = distant
    assert namespace.run(session, site) == ["2", "4000", "90s"]
    assert IDLE_MS > 60_000  # a change waits in its transaction for netd as long as that
