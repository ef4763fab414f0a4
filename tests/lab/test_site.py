"""A device whose configuration is in PostgreSQL: it becomes a member of a site, and the database
goes away and comes back.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from egressd.model.errors import Failed
from egressd.store.postgres.schema import add_member
from egressd_lab.lab import Lab
from tests.support import postgres
from tests.support.device import SERVER, eventually, send
from tests.support.needs import Need

pytestmark = pytest.mark.lab

LEASE_S = 4.5
"""Seconds after which a member without a beat lets no client through."""
WEB = f"http://{SERVER}/"


@pytest.fixture
def database(namespaces: None, need: Need) -> Iterator[postgres.Server]:
    need("the package postgresql", bool(postgres.PROGRAMS))
    with postgres.server() as server:
        yield server


def is_served(lab: Lab, number: int) -> bool:
    return lab.client(number).http(WEB, timeout=0.5).seen == lab.wan(1).address


def problems(lab: Lab) -> str:
    return " ".join(lab.api.ask("GET", "/ops/overview").body["problems"])


def make_site(lab: Lab, database: postgres.Server) -> str:
    """Make a site of a device with a rule, which is stopped then; return how its owner connects."""
    lab.start_egressd()
    send(lab, 1, "DIRECT")
    lab.device.stop()
    with lab.device.config.open("a") as config:
        config.write(f'[cluster]\ndatabase = "{database.conninfo()}"\nsite = "home"\n')
    owner = database.conninfo(postgres.OWNER)
    assert "a member of the site home" in lab.device.run("cluster", "init", "--owner", owner)
    return owner


def stored(database: postgres.Server) -> set[str]:
    return {address for (address,) in database.query("SELECT ip FROM rules")}


def test_a_box_becomes_a_member_of_a_site_and_outlives_its_database(
    database: postgres.Server, tmp_path: Path
) -> None:
    with Lab() as lab:
        make_site(lab, database)
        lab.device.start()
        send(lab, 2, "DIRECT")
        assert stored(database) == {f"{lab.client(n).address}/32" for n in (1, 2)}
        assert is_served(lab, 1)

        database.stop()
        with pytest.raises(Failed, match="the database of the site home"):
            send(lab, 3, "DIRECT")
        assert "the site's database cannot be used" in problems(lab)
        (api,) = lab.device.pids("egressd.app api")
        os.kill(api, signal.SIGKILL)
        eventually(lambda: lab.device.pids("egressd.app api") not in ([], [api]), 30)
        lab.device.wait_healthy()
        assert is_served(lab, 1)
        assert is_served(lab, 2)
        assert not lab.client(3).http(WEB, timeout=0.5).seen
        lab.device.run("backup", str(tmp_path / "backup"))

        database.start()
        send(lab, 3, "DIRECT")
        assert is_served(lab, 3)
        assert not problems(lab)
        lab.device.run("restore", str(tmp_path / "backup"))
        assert stored(database) == {f"{lab.client(n).address}/32" for n in (1, 2)}
        assert is_served(lab, 1)
        assert not lab.client(3).http(WEB, timeout=0.5).seen
        lab.device.stop()
        with pytest.raises(Failed, match="the configuration is the site's"):
            lab.device.run("restore", str(tmp_path / "backup"))


def test_a_member_that_leaves_serves_its_clients_all_the_time(database: postgres.Server) -> None:
    """In a kernel with a lease: the site has another member, which is silent."""
    with Lab() as lab:
        owner = make_site(lab, database)
        ((key_id,),) = database.query("SELECT key_id FROM site")
        add_member(owner, site="home", key_id=key_id, member="other", role="other")
        lab.device.start()
        eventually(lambda: is_served(lab, 1), 20)
        assert "lease" in lab.router.run("nft", "list", "table", "inet", "egressd").stdout
        connection = lab.client(1).connect(SERVER, 7)
        seen = [connection.exchange("before").seen]

        lab.device.run("cluster", "leave", "--write", "--yes")
        (api,) = lab.device.pids("egressd.app api")
        os.kill(api, signal.SIGTERM)
        left = lab.device.data / "api" / "leaves-site"
        begun = time.monotonic()
        while left.exists() or time.monotonic() < begun + LEASE_S:
            assert time.monotonic() < begun + 60
            seen.append(connection.exchange("meanwhile").seen)
        assert {*seen} == {lab.wan(1).address}
        lab.device.wait_healthy()
        assert "lease" not in lab.router.run("nft", "list", "table", "inet", "egressd").stdout
        assert database.query("SELECT is_revoked FROM member WHERE name <> 'other'") == [["t"]]
        database.stop()
        assert not problems(lab)
        send(lab, 2, "DIRECT")
        assert is_served(lab, 2)
        assert connection.exchange("after").seen == lab.wan(1).address
