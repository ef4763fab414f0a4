"""Two boxes become one site by the command line, and each bad input leaves both as they were.

The boxes are folders of this machine, each with a machine id of its own, and reach PostgreSQL by
TCP with TLS, in a network namespace with nothing else in it.
"""

from __future__ import annotations

import asyncio
import json
import pwd
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

from egressd.app import config, site_key
from egressd.app.join_token import JoinToken
from egressd.app.site import store_of
from egressd.app.site_authority import SiteAuthority
from egressd.model.desired import DesiredState
from egressd.store.database import Database
from egressd.store.postgres.connection import NEWEST
from egressd.store.postgres.database import SiteDatabase
from egressd.store.postgres.site_link import SiteLink
from egressd.store.postgres.site_store import GATE_MARK
from egressd.store.sealing import SiteSeal
from tests.store.boxes import WAIT_S, Box, Rig, state_of
from tests.store.rig import EVERYTHING, rules, write
from tests.support import postgres
from tests.support.device import eventually
from tests.support.needs import Need

pytestmark = pytest.mark.lab


def with_token(text: str, **changes: Any) -> str:
    """Return a token that differs from another."""
    return msgspec.structs.replace(JoinToken.read(text), **changes).text


def sessions(rig: Rig, role: str) -> list[list[str]]:
    return rig.query(
        "SELECT version, client_dn FROM pg_stat_ssl JOIN pg_stat_activity USING (pid)"
        f" WHERE usename = '{role}'"
    )


async def write_own(folder: Path) -> DesiredState:
    database = Database(folder)
    await database.open()
    await write(database, rules(3), 1)
    state = await database.load()
    await database.close()
    return state


def test_two_boxes_make_a_site(rig: Rig) -> None:
    box = rig.box()
    own = asyncio.run(write_own(box.data))
    with rig.invitation() as (token, inviting):
        before = box.files()
        assert "--yes must be given" in box.refused("join", given=token)
        assert box.files() == before
        assert "wait" in box.run("join", "--write", "--yes", given=token)
        assert inviting.wait(WAIT_S) == 0
    (backup,) = box.folder.glob("before-site-*")
    assert asyncio.run(Database(box.data).read_backup(backup)) == own
    assert box.settings.cluster.site == "home"
    assert "sslmode=verify-full" in box.settings.cluster.database
    site = asyncio.run(state_of(rig.a.settings))
    assert site == DesiredState().with_edits(EVERYTHING, 1)
    assert rig.network.run_async(state_of, box.settings) == site
    (member,) = (row for row in rig.query("SELECT name, role_name FROM member") if row[0] == "b")
    dump = (box.data / "member.pem").read_text()
    assert rig.query(f"SELECT certificate = '{dump}' FROM member WHERE name = 'b'") == [["t"]]

    async def session() -> list[list[str]]:
        store = store_of(box.settings)
        await store.open()
        await store.load()
        seen = await asyncio.to_thread(sessions, rig, member[1])
        await store.close()
        return seen

    (((version, name),),) = [rig.network.run_async(session)]
    assert version.startswith("TLS")
    assert name == f"/CN={member[1]}"
    assert "was used, was withdrawn, or has expired" in rig.box("c").refused("join", given=token)


def test_a_block_without_its_end_is_left_as_it_is(rig: Rig) -> None:
    """The lines after it are the operator's."""
    file = rig.server.folder / "data" / "pg_hba.conf"
    before = file.read_text()
    wrong = before.replace("# END egressd cluster init\n", "") + "local mine all peer\n"
    assert wrong.count("egressd cluster init") == 1
    file.write_text(wrong)
    try:
        local = ("--local", "--socket", str(rig.server.folder), "--address", "127.0.0.1")
        assert 'no line "# END egressd cluster init"' in rig.a.refused("init", *local)
        assert file.read_text() == wrong
    finally:
        file.write_text(before)


def test_no_other_role_connects_to_the_database(rig: Rig) -> None:
    rig.server.query("CREATE ROLE stranger LOGIN")
    try:
        with pytest.raises(AssertionError, match="permission denied for database"):
            rig.server.query("NOTIFY egressd_1", "stranger", "egressd")
    finally:
        rig.server.query("DROP ROLE stranger")


def test_an_invitation_that_is_interrupted_leaves_nothing(rig: Rig) -> None:
    before = rig.at_site()
    with rig.invitation() as (token, inviting):
        assert rig.at_site() != before
        # Past fault: a second Ctrl-C ended the withdrawal, and the guest's role stayed.
        while inviting.poll() is None:
            inviting.send_signal(signal.SIGINT)
            time.sleep(0.01)
        assert rig.at_site() == before
        assert "was withdrawn" in rig.box().refused("join", given=token)


def refuse_alike(rig: Rig, box: Box, fault: str, token: Callable[[str], str] = str) -> None:
    """Check that a box cannot join for a reason, and that neither side has changed."""
    before, site = box.files(), rig.at_site()
    with rig.invitation() as (text, _):
        said = box.refused("join", given=token(text))
        assert fault in said
        assert "Traceback" not in said
    assert box.files() == before
    assert rig.at_site() == site


def test_a_box_without_a_configuration_needs_a_lease_too(rig: Rig) -> None:
    box = rig.box()
    with rig.invitation() as (token, inviting):
        box.run("join", given=token)
        assert inviting.wait(WAIT_S) == 0
    assert not [*box.folder.glob("before-site-*")]
    assert (box.data / GATE_MARK).read_bytes() == b"1"
    # It was never seen by the others, and lets clients through as before until its restart.
    assert rig.query("SELECT version, is_ungated FROM member WHERE name = 'b'") == [["", "f"]]


def test_the_status_shows_the_members(rig: Rig) -> None:
    with rig.invitation() as (token, inviting):
        rig.box("e").run("join", given=token)
        assert inviting.wait(WAIT_S) == 0
    mine, other = asyncio.run(status_while_a_beats(rig))
    assert mine == {
        "name": "a",
        "is_this": True,
        "version": "9",
        "revision": 1,
        "lag": 0,
        "role": "",
        "role_since": None,
        "is_beating": True,
        "is_shut_out": False,
        "needs_lease": False,
        "blocked": [],
    }
    assert (other["name"], other["version"], other["revision"]) == ("e", "", None)
    assert not other["is_beating"]
    assert other["needs_lease"]
    still, _ = json.loads(rig.a.run("status", "--json"))
    assert (still["revision"], still["is_beating"]) == (1, False)
    assert "e\t\t\t\t\t\tno\tno\tyes" in rig.a.run("status")


async def status_while_a_beats(rig: Rig) -> list[dict[str, Any]]:
    database = site_database(rig.a.settings)
    await database.open()
    await database.load()
    assert database.point is not None
    link = SiteLink(rig.a.settings.cluster.database, version="9")
    await link.join(database.point, "")
    asking = asyncio.create_task(asyncio.to_thread(rig.a.run, "status", "--json"))
    while not asking.done():
        await link.beat(database.point, "")
        await asyncio.sleep(0.2)
    for each in (link, database):
        await each.close()
    found: list[dict[str, Any]] = json.loads(await asking)
    return found


def test_a_removed_member_is_out_and_may_be_replaced(rig: Rig) -> None:
    box = rig.box("c")
    with rig.invitation() as (token, inviting):
        box.run("join", "--write", given=token)
        assert inviting.wait(WAIT_S) == 0
    assert "--yes must be given" in rig.a.refused("remove", "c")
    assert "MEMBER must be another box" in rig.a.refused("remove", "a", "--yes")
    assert "there is no such member" in rig.a.refused("remove", "d", "--yes")
    assert rig.query("SELECT is_revoked FROM member WHERE name = 'c'") == [["f"]]
    assert "c is no member of the site home" in rig.a.run("remove", "c", "--yes")
    assert rig.query("SELECT is_revoked FROM member WHERE name = 'c'") == [["t"]]
    with pytest.raises(RuntimeError, match="not permitted to log in"):
        rig.network.run_async(opened, box.settings)
    other = rig.box("c")
    with rig.invitation() as (token, inviting):
        other.run("join", "--write", given=token)
        assert inviting.wait(WAIT_S) == 0
    rig.network.run_async(opened, other.settings)


def test_a_member_without_a_gate_is_removed_only_if_it_is_off(rig: Rig) -> None:
    """Past fault: its kernel went on by its old rules, while changes counted as in force."""
    box = rig.box("c")
    with rig.invitation() as (token, inviting):
        box.run("join", "--write", given=token)
        assert inviting.wait(WAIT_S) == 0
    rig.query("UPDATE member SET is_ungated = true WHERE name = 'c' RETURNING id")
    assert "without a lease" in rig.a.refused("remove", "c", "--yes")
    assert rig.query("SELECT is_revoked FROM member WHERE name = 'c'") == [["f"]]
    rig.a.run("remove", "c", "--yes", "--is-off")
    assert rig.query("SELECT is_revoked FROM member WHERE name = 'c'") == [["t"]]


async def opened(settings: config.Config) -> None:
    """Log in to the site's database as the member that `settings` name."""
    database = site_database(settings)
    await database.open()
    await database.close()


def site_database(settings: config.Config) -> SiteDatabase:
    seal = SiteSeal(site_key.read(settings))
    return SiteDatabase(settings.cluster.database, site=settings.cluster.site, seal=seal)


def test_a_box_with_other_interfaces_is_refused(rig: Rig) -> None:
    box = rig.box()
    box.configure(lan="eth7")
    refuse_alike(rig, box, "[lan] is eth7 here, and lan0 at the site")


def test_a_box_with_a_members_name_is_refused(rig: Rig) -> None:
    refuse_alike(rig, rig.box("a"), "the site has a member of that name")
    assert "has a member a already" in rig.a.refused("invite", "--member", "a")


def test_a_copy_of_a_member_is_refused(rig: Rig) -> None:
    box = rig.box()
    box.clone(rig.a)
    refuse_alike(rig, box, "it has the machine id of the member a")
    other = rig.box()
    other.data.mkdir()
    shutil.copy(rig.a.data / "site-key", other.data)
    refuse_alike(rig, other, "site-key is there, as on a member of a site")
    member = rig.box()
    member.configure('[cluster]\ndatabase = "host=/x"\nsite = "elsewhere"\n')
    refuse_alike(rig, member, "this box is a member of the site elsewhere")


def test_a_database_of_another_site_is_refused(rig: Rig) -> None:
    rig.server.query("CREATE DATABASE other TEMPLATE egressd")
    host = "host=127.0.0.1 dbname="
    for name, fault in (("other", "the database of another site"), ("template1", "no tables")):
        refuse_alike(rig, rig.box(), fault, partial(with_token, database=host + name))
    rig.server.query("DROP DATABASE other")


@pytest.mark.parametrize(
    ("column", "fault"),
    [
        ("schema_reader SET min_reader = 'p9999'", "of a newer egressd: upgrade this one"),
        ("alembic_version SET version_num = 'p0000'", "is older: run egressd cluster migrate"),
    ],
)
def test_a_database_of_another_schema_is_refused(rig: Rig, column: str, fault: str) -> None:
    with undone(rig):
        rig.query(f"UPDATE {column}")
        refuse_alike(rig, rig.box(), fault)


@contextmanager
def undone(rig: Rig) -> Iterator[None]:
    (least,) = rig.query("SELECT min_reader FROM schema_reader")[0]
    try:
        yield
    finally:
        rig.query(f"UPDATE schema_reader SET min_reader = '{least}'")
        rig.query(f"UPDATE alembic_version SET version_num = '{NEWEST}'")


def test_a_read_only_database_is_refused(rig: Rig) -> None:
    def read_only(text: str) -> str:
        role = JoinToken.read(text).role
        rig.query(f"ALTER ROLE {role} SET default_transaction_read_only = on")
        return text

    refuse_alike(rig, rig.box(), "it is read-only", read_only)


def test_a_server_with_a_wrong_certificate_is_refused(rig: Rig) -> None:
    other = SiteAuthority.make("home").der
    changes: dict[str, Any]
    for fault, changes in (
        ("certificate verify failed", {"authority": other}),
        ("does not match host name", {"database": "host=localhost dbname=egressd"}),
        ("the site's certificate cannot be read", {"authority": b"x"}),
    ):
        refuse_alike(rig, rig.box(), fault, partial(with_token, **changes))


def expires(rig: Rig, role: str) -> bool:
    """Let a role have expired. Return False if the one who invites is just changing it."""
    try:
        rig.query(f"ALTER ROLE {role} VALID UNTIL '2020-01-01'")
    except AssertionError as error:
        if "tuple concurrently updated" not in str(error):
            raise
        return False
    return True


def test_a_token_that_has_expired_is_refused(rig: Rig) -> None:
    site = rig.at_site()
    with rig.invitation() as (token, inviting):
        role = JoinToken.read(token).role
        eventually(lambda: expires(rig, role))
        assert "has expired" in rig.box().refused("join", given=token)
        rig.query("UPDATE invitation SET expires_at = now()")
        assert inviting.wait(WAIT_S) == 1
    assert rig.at_site() == site
    assert "token must be what" in rig.box().refused("join", given=token[:-9])


async def far_away(port: int, seconds: float) -> None:
    """Pass connections at a port on to PostgreSQL, with each answer late."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", 5432)
        late: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()
        clock = asyncio.get_running_loop().time

        async def forward() -> None:
            while part := await reader.read(1 << 16):
                far_writer.write(part)
            far_writer.close()

        async def receive() -> None:
            while part := await far_reader.read(1 << 16):
                late.put_nowait((clock() + seconds, part))
            late.put_nowait((clock(), b""))

        async def give() -> None:
            while True:
                due, part = await late.get()
                await asyncio.sleep(due - clock())
                if not part:
                    break
                writer.write(part)
            writer.close()

        await asyncio.gather(forward(), receive(), give(), return_exceptions=True)

    server = await asyncio.start_server(answer, "127.0.0.1", port)
    await server.serve_forever()


def test_a_database_that_is_too_far_away_is_refused(rig: Rig) -> None:
    delay = rig.network.start_async(far_away, 7000, 1.1)
    eventually(lambda: ":7000 " in rig.network.shell("ss -ltn"))
    database = "host=127.0.0.1 port=7000 dbname=egressd"
    # 1.1 s, or more if this machine is busy.
    fault = "it is too far away: a round trip takes "
    refuse_alike(rig, rig.box(), fault, partial(with_token, database=database))
    delay.kill()


@contextmanager
def pooler(rig: Rig) -> Iterator[None]:
    """Run PgBouncer in transaction mode before the site's database, with its certificate."""
    account = pwd.getpwnam(postgres.USER)
    folder = rig.server.folder  # which PostgreSQL's user can read
    settings = folder / "pgbouncer.ini"
    certificates = rig.server.folder / "data"
    lines = {
        "listen_addr": "127.0.0.1",
        "listen_port": "6432",
        "unix_socket_dir": "",
        "pool_mode": "transaction",
        "auth_type": "any",
        "ignore_startup_parameters": "extra_float_digits,options",
        "client_tls_sslmode": "require",
        "client_tls_cert_file": certificates / "egressd-server.pem",
        "client_tls_key_file": certificates / "egressd-server-key.pem",
    }
    settings.write_text(
        f"[databases]\negressd = host={rig.server.folder} dbname=egressd user={postgres.OWNER}\n"
        "[pgbouncer]\n" + "".join(f"{key} = {value}\n" for key, value in lines.items())
    )
    ids = (f"--reuid={account.pw_uid}", f"--regid={account.pw_gid}", "--clear-groups")
    argv = ["nsenter", f"--net={rig.network.path}", "setpriv", *ids, "pgbouncer", settings]
    with (folder / "pooler-log").open("w") as log:
        running = subprocess.Popen([*map(str, argv)], stdout=log, stderr=log, cwd="/")
    try:
        eventually(lambda: "process up" in (folder / "pooler-log").read_text(), WAIT_S)
        yield
    finally:
        running.terminate()
        running.wait()


def test_a_pooler_in_between_is_refused(rig: Rig, need: Need) -> None:
    need("the package pgbouncer", shutil.which("pgbouncer") is not None)
    with pooler(rig):
        database = "host=127.0.0.1 port=6432 dbname=egressd"
        refuse_alike(
            rig,
            rig.box(),
            "a pooler is in between: connect to PostgreSQL itself",
            partial(with_token, database=database),
        )
