"""A compromised api at netd's real socket: the refused requests, and the resources that it may
take.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from egressd.model.alert_urls import plugin_of
from egressd.model.delays import Delay
from egressd.model.errors import Invalid
from egressd.model.messages import (
    ConnectionsClosed,
    ConnectionsListed,
    Event,
    FetchPage,
    LineNews,
    Located,
    PageFetched,
    Refused,
    Reply,
    RuleCount,
    Status,
    StatusNews,
)
from egressd.model.plan import Change, Plan, difference
from egressd.model.wording import NONE, Sentence, decoded
from egressd.netd.engine.protocol import ProbeDocument
from egressd.netd.ipc.allowance import CONNECTIONS_MAX, Share
from egressd.netd.ipc.server import Server
from egressd.netd.reconciler import validation
from egressd.netd.system import framing
from egressd.planner.registry import (
    MARK_ANSWER,
    MARK_ASKED_DIRECTLY,
    MARK_ASKED_LOCALLY,
    MARK_DIRECT,
    MARK_ENGINE,
    MARK_LISTED,
    MARK_LOCAL,
    MARK_PAST,
    MARK_REJECT,
    PLANNED_EGRESS_MAX,
    egress_mark,
    inbound_number,
    line_mark,
)
from tests.netd.hostile import Json, at, good, raw
from tests.support.netns import eventually
from tests.support.stand_ins import UnexpectedReconciler

SECRET = "/etc/shadow"
GOOD = {name: raw(message) for name, message in good().items()}


# --- Over the socket: a refusal that names the field, and nothing changed. --------------------


class Machine(UnexpectedReconciler):
    """Stands in for everything that requests lead to, and records their calls."""

    def __init__(self) -> None:
        self.done: list[Any] = []
        self.plan = Plan()
        self.gate = asyncio.Event()
        self.gate.set()
        self.at_once = self.at_once_max = 0
        self.failure: Exception | None = None
        self.shown = Status(state="running", revision=0)
        self.status_reads = 0

    async def record(self, *call: object) -> None:
        self.done.append(call)
        await self.gate.wait()

    async def try_configs(self, configs: Sequence[str]) -> list[Sentence]:
        await self.record("tried", configs)
        return []

    async def delays(
        self, probes: Sequence[ProbeDocument], url: str, timeout_ms: int
    ) -> dict[str, Delay]:
        await self.record("measured", probes, url, timeout_ms)
        return {}

    async def send(
        self, probes: Sequence[ProbeDocument], url: str, title: str, body: str
    ) -> Sentence:
        if plugin_of(url) is None:
            raise Invalid("url: it must be one of a service")
        await self.record("alerted", probes, url, title, body)
        return NONE

    async def fetch(self, probes: Sequence[ProbeDocument], asked: FetchPage) -> PageFetched:
        await self.record("fetched", probes, asked)
        return PageFetched()

    async def locate(self, client: str) -> Located:
        await self.record("located", client)
        return Located(0, {})

    async def list(self, client: str) -> ConnectionsListed:
        await self.record("listed", client)
        return ConnectionsListed(0, ())

    async def close_some(self, client: str, wanted: int | None) -> ConnectionsClosed:
        await self.record("closed", client, wanted)
        return ConnectionsClosed(0, 0)

    async def halt(self, reason: str) -> None:
        await self.record("halted", reason)

    async def counters(self) -> dict[int, RuleCount]:
        if self.failure is not None:
            raise self.failure
        await self.record("counted")
        return {}

    async def set_plan(self, plan: Plan) -> int:
        await self.apply(difference(self.plan, plan))
        return plan.whitelist.epoch

    async def apply(self, change: Change, *, is_strict: bool = True) -> None:
        validation.check(change, self.plan)
        self.done.append(change)
        self.at_once += 1
        self.at_once_max = max(self.at_once, self.at_once_max)
        await self.gate.wait()
        self.at_once -= 1

    async def status(self) -> Status:
        self.status_reads += 1
        await self.gate.wait()
        return self.shown


class Attacker:
    """A connection to netd's socket that sends arbitrary messages."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self.writer = reader, writer
        self._decoder = msgspec.msgpack.Decoder(
            Reply | Event | LineNews | StatusNews, dec_hook=decoded
        )

    def send(self, body: object, number: int = 1) -> None:
        packed = msgspec.msgpack.encode({"number": number, "body": body})
        self.writer.write(len(packed).to_bytes(4, "big") + packed)

    async def reply(self) -> Reply:
        async with asyncio.timeout(10):
            while True:
                message = await framing.read(self._reader, self._decoder)
                if isinstance(message, Reply):
                    return message

    async def ask(self, body: object) -> Any:
        self.send(body)
        return (await self.reply()).body

    async def hangs_up_at(self, body: object) -> bool:
        """Return whether netd hangs up without an answer."""
        try:
            await self.ask(body)
        except (asyncio.IncompleteReadError, ConnectionError):
            return True
        return False

    async def is_dropped(self) -> bool:
        """Return whether netd hangs up; earlier messages are skipped."""
        async with asyncio.timeout(10):
            while await self._reader.read(65_536):
                pass
            return True


Connect = Callable[[], Awaitable[Attacker]]


@asynccontextmanager
async def attacked(folder: Path) -> AsyncIterator[tuple[Connect, Machine, Server]]:
    """Yield netd's own server, socket and decoder, and a function that connects to them."""
    machine = Machine()
    file = folder / "netd.sock"
    server = Server(
        file,
        os.getuid(),
        machine,
        errands=machine,
        connections=machine,
    )
    await server.open()
    made: list[Attacker] = []

    async def connect() -> Attacker:
        made.append(Attacker(*await asyncio.open_unix_connection(file)))
        return made[-1]

    try:
        async with asyncio.timeout(60):
            yield connect, machine, server
    finally:
        for attacker in made:
            attacker.writer.close()
        await server.close()


def changed(name: str, /, *place: str | int, **fields: Any) -> Json:
    """Return a good message with these fields at that place; None removes one."""
    message: Json = msgspec.msgpack.decode(msgspec.msgpack.encode(GOOD[name]))
    found = at(message, place)
    found.update(fields)
    for key in [key for key, value in fields.items() if value is None]:
        del found[key]
    return message


def entry(name: str, key: str, /, *place: str | int, **fields: Any) -> Json:
    """Return a good change whose one entry has these fields."""
    table = "instances" if ":" in key and name != "groups" else name
    return changed(f"change {name}", "change", table, "put", key, *place, **fields)


TOR = {"type": "tor", "tag": "node:1", "executable_path": "/bin/sh", "torrc": {"A": "b"}}
ENGINE = {"outbounds": [TOR], "log": {"output": "/tmp/x"}, "route": {"final": "node:1"}}
OUTBOUND = ("work", "paths", 0, "hops", 0, "outbound")
NODE, PROXY = "node:1", "service:1"


def named(table: str, key: str, value: Any) -> Json:
    """Return a change that puts one entry of that name."""
    return {
        "type": "apply_change",
        "change": {"base": 0, "revision": 1, table: {"put": {key: value}}},
    }


HOSTILE: dict[str, tuple[object, str]] = {
    "an engine document to try": ({"type": "try", "configs": [json.dumps(ENGINE)]}, "configs"),
    "a document as a path": ({"type": "try", "paths": [ENGINE]}, "paths[0]"),
    "a document as text": ({"type": "try", "paths": [json.dumps(ENGINE)]}, "paths[0]"),
    "a document to measure": (
        {
            "type": "measure_delay",
            "url": "http://a.test/",
            "timeout_ms": 1,
            "probes": [{"name": "a", "config": json.dumps(ENGINE)}],
        },
        "probes[0]",
    ),
    "a document as an instance": (
        named("instances", NODE, {"key": NODE, "mark": 0x1000_0001, "config": json.dumps(ENGINE)}),
        "config",
    ),
    "a program": (entry(NODE, NODE, "work", "paths", 0, "hops", 0, outbound=TOR), "outbound.type"),
    "WireGuard": (
        entry(NODE, NODE, "work", "paths", 0, "hops", 0, outbound={"type": "snell"}),
        "outbound.type",
    ),
    "a TUN": (entry(NODE, NODE, work={"type": "tun", "auto_route": True}), "work.type"),
    "a certificate's path": (
        entry("node:2", "node:2", *OUTBOUND, "tls", certificate_path=SECRET),
        "certificate_path",
    ),
    "a key's path in ECH": (
        entry("node:2", "node:2", *OUTBOUND, "tls", "ech", config_path=SECRET),
        "config_path",
    ),
    "a path as ECH configuration": (
        entry("node:2", "node:2", *OUTBOUND, "tls", "ech", config="../shadow"),
        "ech.config",
    ),
    "a plugin's own options": (
        entry("node:3", "node:3", *OUTBOUND, plugin_opts="obfs=http;cert=/etc/shadow"),
        "plugin_opts",
    ),
    "another plugin": (
        entry("node:3", "node:3", *OUTBOUND, plugin={"type": "/bin/sh", "host": "a.test"}),
        "plugin.type",
    ),
    "a plugin's host": (
        entry("node:4", "node:4", *OUTBOUND, "plugin", host="a;cert=/etc/shadow"),
        "plugin.host",
    ),
    "a socket's mark": (entry(NODE, NODE, *OUTBOUND, routing_mark=1), "routing_mark"),
    "an interface": (entry(NODE, NODE, *OUTBOUND, bind_interface="eth0"), "bind_interface"),
    "a log file": (entry(NODE, NODE, "work", log={"output": "/etc/cron.d/x"}), "log"),
    "relays without an end": (
        entry(NODE, NODE, "work", "paths", 0, hops=[at(GOOD["try"], ("paths", 0, "hops", 0))] * 18),
        "paths[0].hops",
    ),
    "a group of what there is not": (
        entry("groups", "group:1", members=["node:1", "node:2"]),
        "groups.group:1: members",
    ),
    "a mark that loops": (entry(NODE, NODE, "work", "paths", 0, mark=0x1000_0001), "paths[0].mark"),
    "no mark": (entry(NODE, NODE, "work", "paths", 0, mark=0), "paths[0].mark"),
    "SSH's port": (entry(PROXY, PROXY, "work", port=22), "work.port"),
    "the engine's ports": (entry(PROXY, PROXY, "work", port=20_001), "work.port"),
    "port 0": (entry(PROXY, PROXY, "work", port=0), "work.port"),
    "an address to listen at": (entry(PROXY, PROXY, "work", listen="127.0.0.1"), "listen"),
    "an instance of another's name": (entry(NODE, NODE, key="node:2"), "key"),
    "a rule set elsewhere": (
        entry("sniff:0", "sniff:0", "work", "listed", "sets", 0, rule_set="../../etc/shadow"),
        "rule_set",
    ),
    "a domain that is none": (
        entry("dns:0", "dns:0", "work", "zones", 0, domain='x"}],"log":{'),
        "zones[0].domain",
    ),
    "a resolver that is none": (
        entry("dns:0", "dns:0", "work", "zones", 0, servers=["/run/x.sock"]),
        "servers[0]",
    ),
    "the content of a rule set": (
        changed("change whitelist", "change", "whitelist", rule_sets={"0" * 32 + ".srs": b"SRS"}),
        "rule_sets",
    ),
    "an element of nftables": (named("hosts", "10.0.0.1 }; flush ruleset #", 0x3000_0000), "hosts"),
    "a range of nftables": (named("nets", "10.0.0.0-10.0.0.9\n", 0x3000_0000), "nets"),
    "a mark of another's": (named("hosts", "10.0.0.1", 0x5000_0001), "hosts.10.0.0.1"),
    "an interface's name": (named("egresses", 'wan1" accept', {"number": 1}), "egresses"),
    "a path as an interface": (named("egresses", "../../core", {"number": 1}), "egresses"),
    "loopback": (named("egresses", "lo", {"number": 1}), "egresses"),
    "a table of netd's own": (named("egresses", "wan1", {"number": 0x7FFE}), "wan1: number"),
    "a resolver of nftables": (
        named("egresses", "wan1", {"number": 1, "resolvers": ["9.9.9.9 }; #"]}),
        "resolvers[0]",
    ),
    "a rate": (
        named("limits", "10.0.0.1", {"number": 1, "upload_kbps": 1 << 40, "download_kbps": 0}),
        "upload_kbps",
    ),
    "a limit's address": (
        named("limits", "10.0.0.1; x", {"number": 1, "upload_kbps": 1, "download_kbps": 0}),
        "limits",
    ),
    "a group's URL": (entry("groups", "group:1", url="file:///etc/shadow"), "url"),
    "a group without rest": (entry("groups", "group:1", interval_s=0), "interval_s"),
    "a file to check nodes with": (
        changed("change delay_url", "change", delay_url="file:///etc/shadow"),
        "delay_url",
    ),
    "an option of pppd": (
        entry("lines", "l2tp_1", username='u"\nplugin /tmp/x.so\n"'),
        "lines.l2tp_1: username",
    ),
    "a file of secrets": (entry("lines", "l2tp_1", password="@/etc/shadow"), "password"),
    "a NUL in a secret": (entry("lines", "l2tp_1", secret="a\0b"), "secret"),
    "an endless secret": (entry("lines", "l2tp_1", secret="s" * 1000), "secret"),
    "a command as a server": (entry("lines", "l2tp_1", server="$(reboot)"), "server"),
    "an option as a server": (entry("lines", "l2tp_1", server="--help"), "server"),
    "a line of another's name": (entry("lines", "l2tp_1", name="../../etc"), "name"),
    "a line's carrier": (entry("lines", "l2tp_1", interface="-o/etc"), "interface"),
    "a line's type": (entry("lines", "l2tp_1", type="../bin/sh"), "type"),
    "an option of a line's own": (entry("lines", "l2tp_1", pppoptfile="/tmp/x"), "pppoptfile"),
    "an address to look up": ({"type": "locate", "client": "10.0.0.1 }; #"}, "client"),
    "a client that is none": ({"type": "list_connections", "client": "10.0.0.0/8"}, "client"),
    "a connection of no number": (changed("close", wanted=-1), "wanted"),
    "a reason of several lines": ({"type": "halt", "reason": "x\nnetd: fine"}, "reason"),
    "a reason without an end": ({"type": "halt", "reason": "x" * 10_000}, "reason"),
    "a file to fetch": (changed("measure", url="file:///etc/shadow"), "url"),
    "a header in a URL": (changed("measure", url="http://a.test/\r\nX: y"), "url"),
    "a measurement without an end": (changed("measure", timeout_ms=10**9), "timeout_ms"),
    "a page without an end": (changed("measure", "probes", 0, read_max=1 << 30), "read_max"),
    "pages without an end": (
        changed("measure", probes=[{**at(GOOD["measure"], ("probes", 0)), "read_max": 4096}] * 300),
        "probes",
    ),
    "an alert to a file": (changed("alert", url="file:///etc/shadow"), "url"),
    "an alert of this machine": (changed("alert", url="syslog://x"), "url"),
    "an alert to no service": (changed("alert", url="json://a b"), "url"),
    "an alert by no path": (changed("alert", paths=[]), "paths"),
    "an alert by many paths": (
        changed("alert", paths=at(GOOD["alert"], ("paths",)) * 3),
        "paths",
    ),
    "an alert by a mark that loops": (changed("alert", "paths", 0, mark=0x1000_0001), "paths[0]"),
    "an alert without an end": (changed("alert", body="x" * 10_000), "body"),
    "a title of several lines": (changed("alert", title="x\ny"), "title"),
    "too many to try": (changed("try", paths=at(GOOD["try"], ("paths",)) * 17), "paths"),
    "a plan of another version": (changed("plan", "plan", version=1), "version"),
    "what there is not": ({"type": "shell", "command": "reboot"}, "type"),
    "no message": (7, "object"),
}


@pytest.mark.parametrize("what", HOSTILE)
async def test_a_request_outside_the_model_is_refused_and_changes_nothing(
    tmp_path: Path, what: str
) -> None:
    message, field = HOSTILE[what]

    async with attacked(tmp_path) as (connect, machine, _):
        attacker = await connect()
        refused = await attacker.ask(message)
        assert isinstance(refused, Refused), refused
        assert refused.kind == "invalid"
        assert field in refused.cause
        assert len(refused.cause) < 1000
        assert machine.done == []
        assert isinstance(await attacker.ask({"type": "get_status"}), Status)


@pytest.mark.parametrize(
    ("does", "place", "field"),
    [
        ("try", ("paths", 0), "paths[0].mark"),
        ("measure", ("probes", 0, "path"), "probes[0].path.mark"),
        ("measure", ("probes", 1, "path"), "probes[1].path.mark"),
    ],
)
@pytest.mark.parametrize(
    "mark",
    [
        0,
        51_820,
        MARK_ENGINE | 1,
        MARK_LISTED,
        MARK_REJECT,
        MARK_LOCAL,
        MARK_ANSWER,
        MARK_ASKED_DIRECTLY,
        MARK_ASKED_LOCALLY,
        MARK_PAST,
        egress_mark(inbound_number(0)),
    ],
    ids=hex,
)
async def test_trials_and_measurements_with_a_foreign_mark_are_refused(
    tmp_path: Path, does: str, place: tuple[str | int, ...], field: str, mark: int
) -> None:
    async with attacked(tmp_path) as (connect, machine, _):
        refused = await (await connect()).ask(changed(does, *place, mark=mark))
        assert isinstance(refused, Refused), refused
        assert (refused.kind, field in refused.cause) == ("invalid", True), refused
        assert machine.done == []


@pytest.mark.parametrize("mark", [MARK_DIRECT, egress_mark(1), line_mark(PLANNED_EGRESS_MAX)])
async def test_trials_and_measurements_with_an_egress_mark_are_run(
    tmp_path: Path, mark: int
) -> None:
    async with attacked(tmp_path) as (connect, machine, _):
        attacker = await connect()
        for message in (
            changed("try", "paths", 0, mark=mark),
            changed("measure", "probes", 1, "path", mark=mark),
        ):
            assert not isinstance(await attacker.ask(message), Refused)
        assert [what for what, *_ in machine.done] == ["tried", "measured"]


async def test_a_refusal_quotes_little_of_the_request(tmp_path: Path) -> None:
    async with attacked(tmp_path) as (connect, _, _):
        attacker = await connect()
        for message in (
            {"type": "halt", "reason": "x", "\nnetd: all is well" * 1000: 1},
            named("hosts", "\n" + "x" * 100_000, 1),
        ):
            refused = await attacker.ask(message)
            assert isinstance(refused, Refused)
            assert len(refused.cause) < 500
            assert "\n" not in refused.cause


async def test_an_internal_error_shows_no_details_to_the_api(tmp_path: Path) -> None:
    async with attacked(tmp_path) as (connect, machine, _):
        machine.failure = OSError(2, "no such file", "/root/secret")
        refused = await (await connect()).ask({"type": "get_counters"})
        assert isinstance(refused, Refused)
        assert "FileNotFoundError" in refused.cause
        assert "secret" not in refused.cause


# --- Bounds of resources. ---------------------------------------------------------------------


async def settle() -> None:
    """Run all tasks that can proceed."""
    for _ in range(200):
        await asyncio.sleep(0)


async def test_shares_are_lent_in_order_and_within_their_total() -> None:
    share = Share(10)
    done: list[int] = []

    async def take(part: int) -> None:
        async with share.lent(part):
            done.append(part)
            await asyncio.sleep(0.01)

    await share.borrow(6)
    waiting = [asyncio.create_task(take(part)) for part in (5, 1, 99)]
    await settle()
    assert done == [], "who asks for little does not go before who waits"
    share.give_back(6)
    await asyncio.wait_for(asyncio.gather(*waiting), 5)
    assert done == [5, 1, 99]
    waiting = [asyncio.create_task(take(10)) for _ in range(2)]
    await settle()
    waiting[1].cancel()
    await asyncio.wait(waiting)
    async with asyncio.timeout(5):
        await share.borrow(10)


async def test_connections_are_limited_and_those_of_root_separately(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    uid = os.getuid()
    monkeypatch.setattr("egressd.netd.ipc.server.peer_of", lambda _: (1, uid))

    async with attacked(tmp_path) as (connect, _, server):
        uid = 990
        server._uid = uid
        held = [await connect() for _ in range(CONNECTIONS_MAX)]
        for attacker in held:
            assert isinstance(await attacker.ask({"type": "get_status"}), Status)
        assert await (await connect()).is_dropped()
        uid = 0
        root = await connect()
        assert isinstance(await root.ask({"type": "get_status"}), Status)
        uid = 990
        held[0].writer.close()
        again = await connect()
        while await again.hangs_up_at({"type": "get_status"}):
            again = await connect()


async def test_pending_requests_are_limited_and_root_is_still_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    uid = os.getuid()
    monkeypatch.setattr("egressd.netd.ipc.server.peer_of", lambda _: (1, uid))

    async with attacked(tmp_path) as (connect, machine, server):
        uid = 990
        server._uid = uid
        machine.gate.clear()
        attackers = [await connect() for _ in range(4)]
        for attacker in attackers:
            for number in range(1000):
                attacker.send({"type": "get_counters"}, number)
        await eventually(lambda: len(machine.done) == 128)
        await settle()
        assert len(machine.done) == 128
        uid = 0
        root = await connect()
        root.send({"type": "locate", "client": "10.0.0.1"})
        await eventually(lambda: machine.done[-1] == ("located", "10.0.0.1"))
        machine.gate.set()
        assert (await root.reply()).number == 1
        answered = {(await attackers[0].reply()).number for _ in range(1000)}
        assert answered == set(range(1000))


async def test_plans_and_netds_own_work_run_one_at_a_time(tmp_path: Path) -> None:
    async with attacked(tmp_path) as (connect, machine, _):
        machine.gate.clear()
        attacker = await connect()
        for number in range(100):
            attacker.send(GOOD["plan"], number)
        await eventually(lambda: bool(machine.done))
        await settle()
        assert len(machine.done) == 1
        machine.gate.set()
        for _number in range(100):
            await attacker.reply()
        assert machine.at_once_max == 1
        assert len(machine.done) == 100


async def test_the_number_of_nodes_measured_at_once_is_limited(tmp_path: Path) -> None:
    async with attacked(tmp_path) as (connect, machine, _):
        machine.gate.clear()
        attacker = await connect()
        probe = {**at(GOOD["measure"], ("probes", 1)), "read_max": 0}
        message = {**GOOD["measure"], "probes": [probe] * 10_000}
        for number in range(3):
            attacker.send(message, number)
        await eventually(lambda: bool(machine.done))
        await settle()
        assert len(machine.done) == 1
        machine.gate.set()
        await eventually(lambda: len(machine.done) == 3)


FRAMES = {
    "a length over the limit": b"\xff\xff\xff\xff",
    "no msgpack": b"\0\0\0\1\xc1",
    "no request": b"\0\0\0\1\x07",
    "nested without an end": b"\0\x10\0\0" + b"\x91" * (1 << 20),
    "a number that is none": b"\0\0\0\x0f\x82\xa6number\xff\xa4body\x07",
}


@pytest.mark.parametrize("what", FRAMES)
async def test_an_invalid_frame_ends_the_connection_only(tmp_path: Path, what: str) -> None:
    async with attacked(tmp_path) as (connect, _, _):
        attacker, other = await connect(), await connect()
        attacker.writer.write(FRAMES[what])
        assert await attacker.is_dropped()
        assert isinstance(await other.ask({"type": "get_status"}), Status)


async def test_a_too_deeply_nested_body_is_refused(tmp_path: Path) -> None:
    nested = b"\x91" * 500_000 + b"\x90"
    packed = b"\x82\xa6number\x01\xa4body\x82\xa4type\xa3try\xa5paths" + nested

    async with attacked(tmp_path) as (connect, _, _):
        attacker, other = await connect(), await connect()
        attacker.writer.write(len(packed).to_bytes(4, "big") + packed)
        assert await attacker.is_dropped()
        assert isinstance(await other.ask({"type": "get_status"}), Status)


async def test_an_incomplete_request_times_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("egressd.netd.ipc.server._FRAME_S", 0.05)

    async with attacked(tmp_path) as (connect, _, _):
        # The shares of all of them are returned: other requests are answered.
        for _ in range(3):
            attackers = [await connect() for _ in range(4)]
            for attacker in attackers:
                attacker.writer.write(b"\x01\0\0\0" + b"x")
            for attacker in attackers:
                assert await attacker.is_dropped()
        assert isinstance(await (await connect()).ask({"type": "get_status"}), Status)


@pytest.mark.slow
async def test_requests_of_a_client_that_reads_no_answers_are_not_read(tmp_path: Path) -> None:
    async with attacked(tmp_path) as (connect, machine, _):
        big = Status(state="x" * (1 << 20), revision=0)

        machine.shown = big
        attacker = await connect()
        for number in range(1000):
            attacker.send({"type": "get_status"}, number)
        await eventually(lambda: machine.status_reads > 0)
        await asyncio.sleep(0.2)
        assert machine.status_reads <= 128 + 1
        for _number in range(1000):
            await attacker.reply()
