"""A backup may contain only content that the API accepts, regardless of its origin."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy.exc import DBAPIError

from egressd.formats.config_json import NodeSettings
from egressd.model.desired import DesiredState, Edit
from egressd.model.errors import Invalid
from egressd.model.nouns import NEVER, Node, Settings, Subscription
from egressd.planner.nodes import settings_of
from egressd.service import dial_chains
from egressd.service.group_checks import GroupDraft
from egressd.service.ledger import Proposal
from egressd.service.restored import RestoreChecks
from egressd.service.servers import ServerSurroundings
from egressd.store import schema
from egressd.store.backup_file import read_content
from egressd.store.connection import BadDatabase
from egressd.store.preparation import prepare

if TYPE_CHECKING:
    from tests.support.drafts import Make
    from tests.support.use_cases import Bench, OpenBench

pytestmark = pytest.mark.slow


TABLES = (
    schema.nodes,
    schema.rules,
    schema.lines,
    schema.proxy_services,
    schema.target_groups,
    schema.subscriptions,
)
ONE_ROW = (schema.whitelist, schema.meta)
FREE = {("meta", "generation")}
"""Text that is never read."""


async def in_one(content: bytes) -> AsyncIterator[bytes]:
    yield content


async def configure(bench: Bench, make: Make) -> bytes:
    """Configure at least one row of every kind, and return the backup of it."""
    await bench.add_node("tokyo", group="asia")
    await bench.add_node("osaka", **{"dialer-proxy": "tokyo"})
    await bench.lines.create(make.line("l2tp_1", secret="s"))
    await bench.lines.create(make.line("l2tp_2", interface="l2tp_1"))
    await bench.services.create(make.service())
    await bench.services.create(make.service("home", port=8081))
    await bench.rules.create(make.rule("10.0.0.5", "tokyo"))
    await bench.rules.create(make.rule("10.0.0.6", "Interface:l2tp_1"))
    await bench.rules.create(make.rule("10.0.0.7", "Group_asia"))
    await bench.whitelist.put("example.com", "192.0.2.0/24", "Group_asia")
    await bench.settings.put(Settings(check_interval_s=60))
    await bench.groups.create("office", GroupDraft(members=("tokyo", "Interface:wan1")))
    list_ = Subscription(
        id=1,
        name="seller",
        url="https://example.com/list",
        via="tokyo",
        interval_s=3600,
        created_at="2026-11-20T22:58:40Z",
    )
    await bench.ledger.change(lambda _: Proposal([Edit("subscriptions", 1, list_)], None))
    with await bench.backups.export() as file:
        return file.read()


def changed(backup: bytes, folder: Path, *statements: str | tuple[str, tuple[Any, ...]]) -> bytes:
    """Return the backup after it was edited by hand."""
    file = folder / "changed.db"
    file.write_bytes(backup)
    with closing(sqlite3.connect(file, isolation_level=None)) as db:
        db.execute("PRAGMA ignore_check_constraints = ON")
        for statement in statements:
            text, values = (statement, ()) if isinstance(statement, str) else statement
            db.execute(text, values)
    return file.read_bytes()


def refusal(backup: bytes) -> str:
    """Return why a new device refuses the backup."""
    checks = RestoreChecks({8787: "the API"}, listening=lambda: (), around=ServerSurroundings)
    try:
        checks.refuse(read_content(backup, prepare(), 60.0), DesiredState(), older=False)
    except (Invalid, BadDatabase, ValueError, DBAPIError) as error:
        return str(error)
    pytest.fail("it is taken")


def columns(kind: type) -> Iterator[tuple[str, str]]:
    for table in (*TABLES, *ONE_ROW):
        for column in table.columns:
            if column.type.python_type is kind and (table.name, column.name) not in FREE:
                yield table.name, column.name


@pytest.mark.parametrize("value", ["a\x01b", "\u2028", "x" * 2_000_000], ids=["C0", "LS", "long"])
async def test_every_invalid_text_is_refused(
    bench: Bench, make: Make, tmp_path: Path, value: str
) -> None:
    backup = await configure(bench, make)
    for table, column in columns(str):
        where = f"WHERE id = (SELECT min(id) FROM {table})"
        bad = changed(backup, tmp_path, (f'UPDATE {table} SET "{column}" = ? {where}', (value,)))
        text = refusal(bad)
        assert value not in text
        assert len(text) < 2000
        assert column in text or "has no address" in text


@pytest.mark.parametrize("value", [-1, 2**62])
async def test_every_invalid_number_is_refused(
    bench: Bench, make: Make, tmp_path: Path, value: int
) -> None:
    backup = await configure(bench, make)
    for table, column in columns(int):
        if value > 0 and (table, column) == ("meta", "revision"):
            continue  # a device continues from its own revision
        if column == "failback_min" and value == NEVER:
            continue
        where = f"WHERE id = (SELECT max(id) FROM {table})"
        text = refusal(changed(backup, tmp_path, f"UPDATE {table} SET {column} = {value} {where}"))
        field = column.removesuffix("_min")
        assert field in text or "counters" in text or "CHECK constraint" in text


@pytest.mark.parametrize(
    ("statement", "problem"),
    [
        ("UPDATE counters SET value = 9223372036854775807", "counters: nodes must be from 0 to"),
        ("UPDATE counters SET value = 4503599627370496 WHERE name = 'rules'", "counters: rules"),
        ("UPDATE counters SET value = 67108864 WHERE name = 'nodes'", "counters: nodes"),
        ("UPDATE counters SET value = 5000000000 WHERE name = 'services'", "counters: services"),
        ("INSERT INTO counters VALUES ('more', 1)", "counters: more must be from 0 to 0"),
        ("UPDATE nodes SET id = 67108864 WHERE name = 'osaka'", "counters: nodes"),
        ("UPDATE numbers SET number = 20000 WHERE name = 'Interface:wan1'", "counters: Interface:"),
        ("UPDATE numbers SET number = 0 WHERE name = 'Interface:wan1'", "must have 1 or more"),
        ("UPDATE numbers SET number = 7 WHERE name LIKE 'I%'", "must not have the number of"),
        ("INSERT INTO numbers VALUES ('wan7', 7)", "'wan7' must be a group or an interface"),
        ("INSERT INTO numbers VALUES ('Interface:a b', 7)", "numbers: name must be an interface"),
        ("UPDATE rules SET target_node = 'Interface:lo' WHERE id = 1", "rule 1: target_node"),
        ("UPDATE rules SET target_node = 'a,b' WHERE id = 1", "rule 1: target_node"),
        ("UPDATE rules SET target_node = 'Group_' WHERE id = 1", "rule 1: target_node"),
        ("UPDATE rules SET target_node = '' WHERE id = 1", "rule 1: target_node"),
        ("UPDATE rules SET ip = '10.0.0.5' WHERE id = 1", "rule 1: ip must be"),
        ("UPDATE rules SET ip = '010.0.0.5/32' WHERE id = 1", "10.0.0.5"),
        ("UPDATE rules SET created_at = '2026-11-20' WHERE id = 1", "rule 1: created_at"),
        ("UPDATE rules SET updated_at = '2026-13-20T22:58:40Z' WHERE id = 1", "updated_at"),
        ("UPDATE rules SET upload_limit_kbps = 10000001 WHERE id = 1", "upload_limit_kbps"),
        (
            """UPDATE target_groups SET members = '["REJECT"]'""",
            "group 1: members[0] must be DIRECT",
        ),
        (
            """UPDATE target_groups SET members = '["Group_office"]'""",
            "not lead in a circle: office",
        ),
        ("""UPDATE target_groups SET members = '[7]'""", "Expected `str`"),
        ("""UPDATE target_groups SET weights = '{"tokyo": 2}'""", "group 1: weights must be empty"),
        ("UPDATE target_groups SET filter = '('", "group 1: filter must be a pattern of RE2"),
        ("UPDATE target_groups SET failback_min = 1441", "group 1: failback must be"),
        ("UPDATE target_groups SET name = 'asia'", "the whitelist uses the group asia"),
        ("UPDATE target_groups SET name = 'as' || char(1110) || 'a'", "must not look like"),
        ("UPDATE nodes SET name = 'DIRECT' WHERE id = 1", "node 1: name must not be DIRECT"),
        ("UPDATE nodes SET protocol = 'carrier' WHERE id = 1", "node 1: protocol must be one of"),
        (
            """UPDATE nodes SET config_json = '{"server": "127.0.0.1", "port": 1}' WHERE id = 1""",
            "node 1: config_json.server must not be this device itself",
        ),
        (
            "UPDATE nodes SET change_ip_url = 'http://127.0.0.1/' WHERE id = 1",
            "node 1: change_ip_url must not lead to this device",
        ),
        ("UPDATE nodes SET change_ip_url = 'x' WHERE id = 1", "node 1: change_ip_url must be an"),
        ("UPDATE nodes SET change_ip_via = 'a,b' WHERE id = 1", "node 1: change_ip_via"),
        ("UPDATE nodes SET name = 'DIR' || char(1045) || 'CT' WHERE id = 1", "must not look like"),
        ("UPDATE nodes SET name = 't' || char(8203) WHERE id = 1", "U+200B"),
        (
            "UPDATE nodes SET name = char(1086) || 'saka' WHERE id = 1",
            "must not look like another's",
        ),
        (
            "UPDATE nodes SET \"group\" = 'REJECT' WHERE id = 1",
            "group 'REJECT': name must not look",
        ),
        ("UPDATE proxy_services SET name = char(8238) || 'x' WHERE id = 1", "U+202E"),
        ("UPDATE lines SET type = 'pptp' WHERE id = 1", "line 1: name must begin with pptp_"),
        ("UPDATE lines SET port = 0 WHERE id = 1", "line 1: server, port and secret"),
        ("UPDATE lines SET server = 'VPN.example' WHERE id = 1", "line 1: server, port and secret"),
        ("UPDATE lines SET password = '@/etc/shadow' WHERE id = 1", "line 1: password must not"),
        ("UPDATE lines SET dns_servers = '[\"::1\"]' WHERE id = 1", "line 1: dns_servers"),
        ("UPDATE lines SET interface = 'l2tp_2' WHERE id = 1", "lines: interface must not lead"),
        ("UPDATE proxy_services SET port = 8787 WHERE id = 1", "8787 is for the API"),
        ("UPDATE proxy_services SET port = 22 WHERE id = 1", "22 is for SSH"),
        ("UPDATE proxy_services SET port = 8081 WHERE id = 1", "port must not be another's: 8081"),
        ("UPDATE proxy_services SET password = 'x' WHERE id = 1", "username must not be empty"),
        ("UPDATE whitelist SET node = 'REJECT'", "whitelist: node must be DIRECT"),
        ("UPDATE whitelist SET node = 'Interface:wan1'", "whitelist: node must be DIRECT"),
        ("UPDATE whitelist SET ips = '10.0.0.1/8'", "whitelist: ips: '10.0.0.1/8'"),
        ("UPDATE whitelist SET domains = 'a..b'", "whitelist: domains: 'a..b'"),
        (
            "UPDATE whitelist SET domains = replace(hex(zeroblob(100000)), '00', 'a.b,')",
            "whitelist: domains must have at most 100000 entries",
        ),
        ("UPDATE settings SET value = '1' WHERE name = 'check_interval_s'", "check_interval_s"),
        ("UPDATE settings SET value = '\"file:///x\"' WHERE name = 'delay_url'", "delay_url"),
        ("UPDATE settings SET value = '\"x\"' WHERE name = 'group_strategy'", "group_strategy"),
        ("UPDATE settings SET value = '\"a,b\"' WHERE name = 'unmanaged'", "settings: unmanaged"),
        ("UPDATE settings SET value = '1' WHERE name = 'sniff_domains'", "Expected `bool`"),
        ("INSERT INTO sessions VALUES ('a', x'00', '', '', 0, 0)", "sessions.id holds a value of"),
        (
            "INSERT INTO sessions VALUES ('a', 'b', '', '', 'soon', 0)",
            "sessions.created_at holds a value of",
        ),
    ],
)
async def test_values_that_the_api_refuses_are_refused(
    bench: Bench,
    make: Make,
    tmp_path: Path,
    statement: str,
    problem: str,
) -> None:
    backup = changed(await configure(bench, make), tmp_path, statement)
    assert problem in refusal(backup)


async def test_relay_loops_are_refused(bench: Bench, make: Make, tmp_path: Path) -> None:
    backup = await configure(bench, make)
    config = json.dumps({"server": "198.51.100.7", "port": 1080, "dialer-proxy": "osaka"})
    circle = changed(backup, tmp_path, ("UPDATE nodes SET config_json = ? WHERE id = 1", (config,)))
    assert "dialer_proxy must not lead in a circle" in refusal(circle)


async def test_the_relay_of_each_node_is_read_once(
    bench: Bench, make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fields = "?, ?, protocol, ?, '', created_at, '', '', 0, '', ''"
    row = f"INSERT INTO nodes SELECT {fields} FROM nodes WHERE id = 1"
    config = '{"server": "198.51.100.7", "port": 1080, "dialer-proxy": "%s"}'
    after = {f"n{n}": f"m{n}" for n in range(200)} | {f"m{n}": f"n{n + 1}" for n in range(200)}
    after["m199"] = "n150"
    rows = [(row, (100 + n, name, config % after[name])) for n, name in enumerate(after)]
    backup = changed(await configure(bench, make), tmp_path, *rows)
    read: list[str] = []

    def relay_of(node: Node) -> NodeSettings:
        read.append(node.name)
        return settings_of(node)

    monkeypatch.setattr(dial_chains, "settings_of", relay_of)
    told = refusal(backup)
    assert "nodes: dialer_proxy must not lead in a circle: n150 -> m150 -> n151 -> m151" in told
    assert told.count("circle") == 1
    assert sorted(read) == sorted({*read})


async def test_an_existing_too_long_chain_is_accepted_and_blocks(
    bench: Bench, make: Make, open_bench: OpenBench, tmp_path: Path
) -> None:
    for name in "ab":
        await bench.add_node(f"{name}0")
        for number in range(1, 17):
            await bench.add_node(f"{name}{number}", **{"dialer-proxy": f"{name}{number - 1}"})
    with pytest.raises(Invalid, match="must not lead through more than 16 others"):
        await bench.add_node("a17", **{"dialer-proxy": "a16"})
    first = bench.state.node_by_name["a0"]
    await bench.nodes.replace(first, make.node("a0", **{"dialer-proxy": "b9"}))
    for name in ("a6", "a7"):
        await bench.rules.create(make.rule(f"10.0.0.{len(bench.state.rules) + 5}", name))
    blocked = [f"node:{bench.state.node_by_name[name]}" for name in ("a6", "a7")]
    assert [key in bench.netd.plan.instances for key in blocked] == [True, False]
    with await bench.backups.export() as file:
        backup = file.read()
    async with open_bench(tmp_path / "other") as other:
        await other.start()
        await other.backups.restore(in_one(backup))
        assert other.state.edits_to(bench.state) == []
        await other.agree()


@pytest.mark.parametrize(
    ("column", "problem"),
    [
        ("nodes.name", "node 1: name must have 1 to 64 characters"),
        ('nodes."group"', "node 1: group must have at most 64 characters"),
        ("proxy_services.name", "proxy service 1: name must have 1 to 64 characters"),
        ("lines.name", "line 1: name must begin with l2tp_"),
        ("lines.server", "line 1: server must be an IPv4 address or a host name"),
        ("settings.value", "settings: delay_url must be an http or https URL"),
        ("whitelist.domains", "whitelist: domains"),
    ],
)
async def test_a_text_with_thousands_of_combining_marks_is_refused_quickly(
    bench: Bench, make: Make, tmp_path: Path, column: str, problem: str
) -> None:
    table, _, field = column.partition(".")
    text = "http://a" + "\u0301\u0316" * 100_000  # putting them in order takes half a minute
    value = json.dumps(text) if table == "settings" else text
    where = "name = 'delay_url'" if table == "settings" else f"id = (SELECT min(id) FROM {table})"
    statement = f"UPDATE {table} SET {field} = ? WHERE {where}"
    backup = changed(await configure(bench, make), tmp_path, (statement, (value,)))
    began = time.process_time()
    told = refusal(backup)
    assert time.process_time() - began < 5.0
    assert problem in told
    assert len(told) < 2000


async def test_a_long_problem_is_cut(bench: Bench, make: Make, tmp_path: Path) -> None:
    long = "l2tp_" + "x" * 100_000
    circle = [
        ("UPDATE lines SET interface = ? WHERE id = 1", (long,)),
        ("UPDATE lines SET name = ?, interface = 'l2tp_1' WHERE id = 2", (long,)),
    ]
    told = refusal(changed(await configure(bench, make), tmp_path, *circle))
    assert "lines: interface must not lead in a circle: l2tp_1 -> l2tp_xxx" in told
    assert len(told) < 2000


async def test_more_interfaces_than_available_numbers_are_refused(
    bench: Bench, make: Make, tmp_path: Path
) -> None:
    backup = await configure(bench, make)
    rows = """
        WITH RECURSIVE n(i) AS (VALUES (100) UNION ALL SELECT i + 1 FROM n WHERE i < 14500)
        INSERT INTO rules SELECT i, '10.1.' || (i / 256) || '.' || (i % 256) || '/32', '', '', 1,
            'Interface:w' || i, 0, 0, created_at, created_at, '' FROM n, rules WHERE id = 1
    """
    backup = changed(backup, tmp_path, rows)
    text = refusal(backup)
    assert "counters: Interface: must be from 0 to 14335, and is 14403" in text


async def test_the_port_of_another_program_is_refused(
    bench: Bench, make: Make, tmp_path: Path
) -> None:
    backup = await configure(bench, make)
    await bench.services.delete_many(list(bench.state.services))
    bench.foreign_ports = {8080}
    with pytest.raises(Invalid, match="port must be free: another program listens on 8080"):
        await bench.backups.restore(in_one(backup))
    off = "UPDATE proxy_services SET is_enabled = 0 WHERE port = 8080"
    await bench.backups.restore(in_one(changed(backup, tmp_path, off)))
    assert len(bench.state.services) == 2


async def test_every_fault_is_reported_at_once(bench: Bench, make: Make, tmp_path: Path) -> None:
    backup = changed(
        await configure(bench, make),
        tmp_path,
        "UPDATE rules SET mac = char(1), target_node = ''",
        "UPDATE whitelist SET node = 'REJECT'",
    )
    text = refusal(backup)
    for rule in (1, 2, 3):
        assert f"rule {rule}: mac must not contain control characters" in text
        assert f"rule {rule}: target_node must be" in text
    assert "whitelist: node must be" in text


async def test_dangling_references_are_accepted(
    bench: Bench, make: Make, open_bench: OpenBench, tmp_path: Path
) -> None:
    await configure(bench, make)
    await bench.nodes.delete(1)  # rules, the whitelist and a relay name it, or its group
    await bench.lines.delete_many([("l2tp", "l2tp_1")])
    with await bench.backups.export() as file:
        backup = file.read()
    async with open_bench(tmp_path / "other") as other:
        await other.start()
        await other.backups.restore(in_one(backup))
        assert other.state.edits_to(bench.state) == []
        await other.agree()


async def test_rows_that_the_device_already_has_are_accepted(
    bench: Bench, make: Make, tmp_path: Path
) -> None:
    """Rows that an older egressd accepted, in the device's own backup."""
    backup = await configure(bench, make)
    bad = changed(backup, tmp_path, """UPDATE nodes SET config_json = '{"a":' WHERE id = 1""")
    await bench.backups.restore(in_one(bad), older=True)
    await bench.rules.delete(1)
    await bench.backups.restore(in_one(bad))
    assert len(bench.state.rules) == 3


async def test_after_a_restore_with_the_highest_counters_rows_can_be_added(
    bench: Bench, make: Make, open_bench: OpenBench, tmp_path: Path
) -> None:
    highest = [
        "UPDATE counters SET value = 4503599627370495 WHERE name IN ('rules', 'lines')",
        "UPDATE counters SET value = 33554431 WHERE name = 'Group_'",
        "UPDATE counters SET value = 67108863 WHERE name = 'nodes'",
        "UPDATE counters SET value = 4999999999 WHERE name = 'services'",
        "UPDATE counters SET value = 14335 WHERE name = 'Interface:'",
    ]
    backup = changed(await configure(bench, make), tmp_path, *highest)
    async with open_bench(tmp_path / "other") as other:
        await other.start()
        await other.backups.restore(in_one(backup))
        assert (await other.add_node("new", group="new")).id <= 67108863
        await other.rules.create(make.rule("10.0.0.9", "Interface:new"))
        await other.services.create(make.service("new", port=8090))
        await other.lines.create(make.line("l2tp_9"))
        await other.agree()


async def test_a_refused_backup_changes_nothing(bench: Bench, make: Make, tmp_path: Path) -> None:
    backup = await configure(bench, make)
    await bench.rules.delete(1)
    before, asked = bench.state, len(bench.netd.asked)
    bad = changed(backup, tmp_path, "UPDATE counters SET value = 9223372036854775807")
    with pytest.raises(Invalid, match="counters: nodes must be from 0 to 67108863"):
        await bench.backups.restore(in_one(bad))
    assert (bench.state, len(bench.netd.asked)) == (before, asked)
    await bench.agree()
    await bench.rules.create(make.rule("10.0.0.99"))
    await bench.add_node("another")
    await bench.backups.restore(in_one(backup))
    await bench.rules.create(make.rule("10.0.0.98"))


async def test_confusable_names_of_an_older_egressd_are_accepted_on_request(
    bench: Bench, make: Make, open_bench: OpenBench, tmp_path: Path
) -> None:
    rename = "UPDATE nodes SET name = char(1086) || 'saka' WHERE id = 1"
    backup = changed(await configure(bench, make), tmp_path, rename)
    async with open_bench(tmp_path / "other") as other:
        await other.start()
        with pytest.raises(Invalid, match="must not look like another's"):
            await other.backups.restore(in_one(backup))
        await other.backups.restore(in_one(backup), older=True)
        assert len(other.state.nodes) == 2
        await other.backups.restore(in_one(backup))  # the device already has them
    own = """UPDATE nodes SET config_json = '{"server": "10.0.0.1", "port": 1}' WHERE id = 1"""
    with pytest.raises(Invalid, match="must not be this device itself"):
        await bench.backups.restore(in_one(changed(backup, tmp_path, own)), older=True)
