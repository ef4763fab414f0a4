"""Databases to open, and a server of processes to kill."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from pathlib import Path

from egressd.model.desired import DesiredState, Edit
from egressd.model.nouns import (
    AlertChannel,
    AlertPolicy,
    Line,
    Node,
    ProxyService,
    Rule,
    Settings,
    Subscription,
    TargetGroup,
    Whitelist,
)
from egressd.model.undo import LoggedChange, reversals, summary
from egressd.model.wording import together
from egressd.store import schema
from egressd.store.database import Database
from egressd.store.postgres.database import COMMIT_S, INQUIRY_S, SiteDatabase
from egressd.store.postgres.schema import add_member, migrate
from egressd.store.postgres.site_link import SiteLink
from egressd.store.postgres.site_store import SiteStore
from egressd.store.sealing import SiteSeal
from tests.support.postgres import MEMBER, OWNER, Server

OpenDatabase = Callable[[Path], AbstractAsyncContextManager[Database]]
EditsOf = Callable[[int], list[Edit]]

_RESTORED = (
    "change",
    "edit_batch",
    *(table.name for table in schema.metadata.sorted_tables if table not in schema.PRIVATE),
)
"""The tables with the state of a site and its log; none refers to an earlier one."""
SECRETS = ("node-password", "line-password", "line-secret", "proxy-password")
"""The secrets in `EVERYTHING`."""
NODE = Node(
    id=7,
    name="tokyo ☂",
    protocol="ss",
    config_json='{"a": "☂", "password": "node-password"}',
    group="asia",
    created_at="t",
)
RULE = Rule(id=1, ip="10.0.0.5/32", target_node="tokyo ☂", upload_limit_kbps=5, created_at="t")
LINE = Line(
    id=3,
    type="l2tp",
    name="l2tp_1",
    server="vpn.example.net",
    port=1701,
    username="u",
    password="line-password",
    secret="line-secret",
    dns_profile="custom",
    dns_servers=("9.9.9.9", "1.1.1.1"),
    is_enabled=False,
)
SERVICE = ProxyService(
    id=2,
    name="s",
    outbound_interface="eth1",
    port=8080,
    username="u",
    password="proxy-password",
)
CHANNEL = AlertChannel(
    id=5, name="phone", url="ntfys://example.com/channel-secret", via="Group_asia", is_enabled=False
)
GROUP = TargetGroup(
    id=4,
    name="asia",
    strategy="spread",
    members=("tokyo ☂", "Interface:eth1", "DIRECT"),
    weights={"tokyo ☂": 3},
    filter="☂$",
    check_url="http://example.com/",
    check_interval_s=5,
    tolerance_ms=0,
    failback_min=-1,
    on_switch="drain",
    rotate_every_s=600,
    created_at="t",
)
SUBSCRIPTION = Subscription(
    id=6,
    name="seller",
    url="https://example.com/list-secret",
    user_agent="clash",
    headers="X-Key: list-secret",
    group="asia",
    interval_s=3600,
    via="tokyo ☂",
    include="☂",
    exclude="expire",
    rename={"^b": "1", "^a": "2"},
    gone="delete",
    is_enabled=False,
    created_at="t",
)
POLICY = AlertPolicy(on=("wan.down",), for_s=5, quiet="23:00-07:00", channels=(5,))
EVERYTHING = [
    Edit("numbers", "Group_asia", 1),
    Edit("numbers", "Interface:eth1", 1),
    Edit("nodes", 7, NODE),
    Edit("rules", 1, RULE),
    Edit("lines", 3, LINE),
    Edit("services", 2, SERVICE),
    Edit("alert_channels", 5, CHANNEL),
    Edit("groups", 4, GROUP),
    Edit("subscriptions", 6, SUBSCRIPTION),
    Edit("whitelist", 0, Whitelist(domains="example.com", ips="192.0.2.1", node="Group_asia")),
    Edit("settings", 0, Settings(unmanaged="DIRECT", stopped=True, alerts=POLICY)),
]


async def write(
    database: Database | SiteDatabase | SiteStore, edits: list[Edit], revision: int
) -> None:
    await database.begin(edits, revision)
    await database.commit()


def rules(count: int, start: int = 1) -> list[Edit]:
    return [
        Edit(
            "rules", i, Rule(id=i, ip=f"10.{i >> 16}.{i >> 8 & 255}.{i & 255}/32", target_node="x")
        )
        for i in range(start, start + count)
    ]


def logged(edits: list[Edit], before: DesiredState, undoes: int | None = None) -> LoggedChange:
    return LoggedChange(
        at="2026-11-20T22:58:40Z",
        who="token",
        source="10.0.0.9",
        what="POST /x",
        text=together(summary(before, edits)),
        reversals=reversals(before, edits),
        undoes=undoes,
    )


SERVER = Path(__file__).with_name("crash_server.py")


class CrashServer:
    """``crash_server.py``, and a tracer for its children."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(SERVER)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
        )
        assert self.hear() == "serving"

    def say(self, text: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{text}\n")

    def hear(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def hear_ready(self) -> int:
        """Return the process id of a child that waits for its tracer and for the line to
        continue.
        """
        word, pid = self.hear().split()
        assert word == "ready"
        return int(pid)

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait(10)


class Site:
    """A site in a PostgreSQL server, of which this process is a member."""

    def __init__(self, server: Server, name: str) -> None:
        self.server = server
        self.name = name
        self.role = f"{MEMBER}_{name}"
        self.seal = SiteSeal(hashlib.sha256(name.encode()).digest())

    def make(self) -> None:
        """Make the tables, the site and its member."""
        owner = self.server.conninfo(OWNER)
        migrate(owner)
        add_member(owner, site=self.name, key_id=self.seal.key_id, member="a", role=self.role)

    def second(self) -> Site:
        """Return the site as a second member, ``b``, sees it."""
        other = Site(self.server, self.name)
        other.role = f"{self.role}_b"
        owner = self.server.conninfo(OWNER)
        add_member(owner, site=self.name, key_id=self.seal.key_id, member="b", role=other.role)
        return other

    def save(self) -> None:
        """Keep a copy of the site's state and its log, for `restore`."""
        self.server.query("DROP SCHEMA IF EXISTS saved CASCADE; CREATE SCHEMA saved")
        for table in _RESTORED:
            self.server.query(f"CREATE TABLE saved.{table} AS {self._rows(table)}")

    def restore(self) -> None:
        """Bring the site back to what `save` has kept, as an older copy of the database would."""
        statements = [
            *(f"DELETE FROM {table} WHERE site = {self._id}" for table in _RESTORED),
            *(f"INSERT INTO {table} TABLE saved.{table}" for table in reversed(_RESTORED)),
        ]
        self.server.query(f"BEGIN; {'; '.join(statements)}; COMMIT")

    @property
    def _id(self) -> str:
        return f"(SELECT id FROM site WHERE name = '{self.name}')"

    def _rows(self, table: str) -> str:
        return f"SELECT * FROM {table} WHERE site = {self._id}"

    def link(self, conninfo: str = "") -> SiteLink:
        """Return the member's link to the others, not connected."""
        return SiteLink(conninfo or self.server.conninfo(self.role), version="1")

    def database(
        self, conninfo: str = "", *, commit_s: float = COMMIT_S, inquiry_s: float = INQUIRY_S
    ) -> SiteDatabase:
        """Return the site's database, not opened, at another place if `conninfo` names one."""
        return SiteDatabase(
            conninfo or self.server.conninfo(self.role),
            site=self.name,
            seal=self.seal,
            commit_s=commit_s,
            inquiry_s=inquiry_s,
        )

    def store(self, folder: Path) -> SiteStore:
        """Return the store of a member whose replica is in `folder`."""
        return SiteStore(self.database(), Database(folder))


@contextmanager
def newer_schema(server: Server) -> Iterator[None]:
    """Have the database's schema be one for newer egressds only, as their migration leaves it."""
    ((before,),) = server.query("SELECT min_reader FROM schema_reader")
    server.query("UPDATE schema_reader SET min_reader = 'p9999'")
    try:
        yield
    finally:
        server.query(f"UPDATE schema_reader SET min_reader = '{before}'")


@contextmanager
def standby_away(site: Site) -> Iterator[None]:
    """Have each durable COMMIT of the server wait for a standby that is not there."""
    with site.server.configured("synchronous_standby_names", "absent"):
        yield
