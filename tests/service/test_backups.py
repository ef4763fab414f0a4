"""Backups: written while changes go on, restored as one change or not at all."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from egressd.model.desired import DesiredState
from egressd.model.errors import Failed, Invalid, OverQuota
from egressd.model.nouns import Settings
from egressd.store.preparation import prepare

if TYPE_CHECKING:
    from tests.support.drafts import Make
    from tests.support.use_cases import Bench, OpenBench, Settle

pytestmark = pytest.mark.slow

NEWEST = str(prepare().newest).encode()
"""The newest schema, as named in a backup."""


async def in_pieces(content: bytes) -> AsyncIterator[bytes]:
    for start in range(0, len(content), 1000):
        yield content[start : start + 1000]


async def exported(bench: Bench) -> bytes:
    with await bench.backups.export() as file:
        return file.read()


async def configure(bench: Bench, make: Make) -> None:
    """Configure at least one row of every kind."""
    await bench.add_node("tokyo", group="asia")
    await bench.lines.create(make.line("l2tp_1"))
    await bench.services.create(make.service())
    await bench.rules.create(make.rule("10.0.0.5", "tokyo"))
    await bench.rules.create(make.rule("10.0.0.6", "Interface:l2tp_1"))
    await bench.whitelist.put("example.com", "", "Group_asia")


async def change_everything(bench: Bench, make: Make) -> None:
    for rule in list(bench.state.rules.values()):
        await bench.rules.delete(rule.id)
    await bench.nodes.replace(1, make.node("osaka"))
    await bench.rules.create(make.rule("10.0.0.7", "osaka"))
    await bench.lines.create(make.line("pptp_1"))
    await bench.whitelist.put("", "", "DIRECT")
    await bench.settings.put(Settings(check_interval_s=60))


async def test_a_restored_state_equals_the_backed_up_one(bench: Bench, make: Make) -> None:
    await configure(bench, make)
    wanted, backup = bench.state, await exported(bench)
    await change_everything(bench, make)
    changed = bench.state
    outcome = await bench.backups.restore(in_pieces(backup))
    restored = bench.state
    assert restored.edits_to(wanted) == []
    assert restored.revision == changed.revision + 1
    assert (outcome.value.rules, outcome.value.nodes) == (2, 1)
    assert (outcome.value.lines, outcome.value.services) == (1, 1)
    await bench.agree()
    fresh = (await bench.rules.create(make.rule("10.0.0.8"))).value
    assert fresh.id not in {*wanted.rules, *changed.rules}


async def test_restoring_an_equal_state_changes_nothing(bench: Bench, make: Make) -> None:
    await configure(bench, make)
    backup = await exported(bench)
    revision, asked = bench.state.revision, len(bench.netd.asked)
    await bench.backups.restore(in_pieces(backup))
    assert (bench.state.revision, len(bench.netd.asked)) == (revision, asked)


async def test_a_backup_of_another_device_is_accepted(
    bench: Bench, make: Make, open_bench: OpenBench, tmp_path: Path
) -> None:
    async with open_bench(tmp_path / "other") as other:
        await other.start()
        await other.add_node("first", group="other")
        await configure(other, make)
        backup, wanted = await exported(other), other.state
    await change_after_configure(bench, make)
    await bench.backups.restore(in_pieces(backup))
    assert bench.state.edits_to(wanted) == []
    await bench.agree()


async def change_after_configure(bench: Bench, make: Make) -> None:
    await configure(bench, make)
    await change_everything(bench, make)


async def test_the_status_is_restoring_during_a_restore(
    bench: Bench, make: Make, settle: Settle
) -> None:
    await configure(bench, make)
    backup = await exported(bench)
    await change_everything(bench, make)
    bench.netd.hold = asyncio.Event()
    restoring = asyncio.create_task(bench.backups.restore(in_pieces(backup)))
    asked = len(bench.netd.asked)
    while len(bench.netd.asked) == asked:
        await settle()
    assert (await bench.system.status()).state == "restoring"
    assert not restoring.done()
    bench.netd.hold.set()
    await restoring
    assert (await bench.system.status()).state == "running"


@pytest.mark.parametrize("failing", ["begin", "commit", "refuse"])
async def test_a_failed_restore_changes_nothing(bench: Bench, make: Make, failing: str) -> None:
    await configure(bench, make)
    backup = await exported(bench)
    await change_everything(bench, make)
    before = bench.state
    if failing == "refuse":
        bench.netd.behaviour = ["refuse"]
    else:
        bench.store.failing = [failing]
    with pytest.raises(Failed):
        await bench.backups.restore(in_pieces(backup))
    assert bench.state is before
    assert bench.ledger.phase == "running"
    await bench.agree()


@pytest.mark.parametrize(
    ("damage", "problem"),
    [
        (lambda backup: b"", "truncated"),
        (lambda backup: b"x" * 5000, "not a SQLite database"),
        (lambda backup: backup[:68] + b"ABCD" + backup[72:], "not a database of egressd's"),
        (lambda backup: backup[: len(backup) // 2], "malformed|damaged"),
        (lambda backup: backup[:4096] + b"\xff" * 4096 + backup[8192:], "malformed|damaged"),
        (lambda backup: backup.replace(NEWEST, b"9999"), "newer egressd"),
    ],
)
async def test_a_file_that_is_no_backup_is_refused(
    bench: Bench, make: Make, damage: object, problem: str
) -> None:
    assert callable(damage)
    await configure(bench, make)
    backup, before = await exported(bench), bench.state
    with pytest.raises(Invalid, match=problem):
        await bench.backups.restore(in_pieces(damage(backup)))
    assert bench.state is before
    await bench.agree()


def edited(backup: bytes, folder: Path, statement: str) -> bytes:
    """Return the backup as an earlier version, with other checks, might have written it."""
    file = folder / "edited.db"
    file.write_bytes(backup)
    with closing(sqlite3.connect(file)) as db, db:
        assert db.execute(statement).rowcount == 1
    return file.read_bytes()


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE nodes SET protocol = 'wireguard' WHERE name = 'tokyo'",
        """UPDATE nodes SET config_json = '{"port": 1}' WHERE name = 'tokyo'""",
        """UPDATE nodes SET config_json = '{"dns-profile": 7}' WHERE name = 'tokyo'""",
    ],
)
async def test_a_node_that_is_no_longer_valid_blocks_only_its_clients(
    bench: Bench, make: Make, tmp_path: Path, statement: str
) -> None:
    await configure(bench, make)
    backup = edited(await exported(bench), tmp_path, statement)
    await change_everything(bench, make)
    state = bench.state
    with pytest.raises(Invalid, match=r"node 1: (protocol|config_json)"):
        await bench.backups.restore(in_pieces(backup))
    assert bench.state is state
    outcome = await bench.backups.restore(in_pieces(backup), older=True)
    assert any(note.startswith("the node tokyo does not work: ") for note in outcome.notes)
    assert "node:1" not in bench.netd.plan.instances
    await bench.ledger.resync()
    await bench.rules.create(make.rule("10.0.0.8", "tokyo"))
    ((_, link, lost),) = bench.nodes.links()
    assert (link, len(lost)) == ("", 1)
    await bench.agree()


async def test_a_rule_without_a_network_is_refused(
    bench: Bench, make: Make, tmp_path: Path
) -> None:
    await configure(bench, make)
    statement = "UPDATE rules SET ip = '10.0.0.5/24' WHERE ip = '10.0.0.5/32'"
    backup, before = edited(await exported(bench), tmp_path, statement), bench.state
    with pytest.raises(Invalid, match=r"rule 1 has no address: 10\.0\.0\.5/24 has host bits set"):
        await bench.backups.restore(in_pieces(backup))
    assert bench.state is before
    await bench.agree()


async def test_no_temporary_files_remain(bench: Bench, make: Make, tmp_path: Path) -> None:
    await configure(bench, make)
    there = {file.name for file in (tmp_path / "data").iterdir()}
    await bench.backups.restore(in_pieces(await exported(bench)))
    with pytest.raises(Invalid):
        await bench.backups.restore(in_pieces(b"nothing of use"))
    bench.store.failing = ["backup"]
    with pytest.raises(Failed):
        await bench.backups.export()
    assert {file.name for file in (tmp_path / "data").iterdir()} == there


async def test_temporary_files_of_a_killed_process_are_deleted(
    bench: Bench, tmp_path: Path
) -> None:
    left = tmp_path / "data" / ".backup-abc"
    left.mkdir()
    (left / "state.db").write_bytes(b"half of it")
    bench.backups.tidy()
    assert not left.exists()
    assert (tmp_path / "data" / "state.db").exists()


async def test_p4_ids_from_before_a_backup_are_not_reused_after_its_restore(
    bench: Bench, make: Make, open_bench: OpenBench, tmp_path: Path
) -> None:
    """Past fault: ids were given a second time after a backup was restored into a new database,
    because the backup's counter was not restored.
    """
    async with open_bench(tmp_path / "other") as other:
        await other.start()
        for number in range(1, 6):
            await other.rules.create(make.rule(f"10.0.0.{number}"))
        for number in range(2, 6):
            await other.rules.delete(number)
        backup = await exported(other)
    await bench.backups.restore(in_pieces(backup))
    assert (await bench.rules.create(make.rule("10.0.0.9"))).value.id == 6
    await bench.agree()


async def test_a_restore_adds_no_proxy_services_beyond_the_license(
    bench: Bench, make: Make
) -> None:
    for number in range(3):
        await bench.services.create(make.service(f"s{number}", port=18_000 + number))
    backup, state = await exported(bench), bench.state
    bench.quota = 2
    await bench.backups.restore(in_pieces(backup))  # existing services remain
    await bench.services.delete_many(list(state.services)[:2])
    state = bench.state
    with pytest.raises(OverQuota, match="the backup has 3 proxy services, and 2 are allowed"):
        await bench.backups.restore(in_pieces(backup))
    assert bench.state is state


async def test_one_backup_is_read_at_a_time(
    bench: Bench, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    await configure(bench, make)
    backup, reading, most = await exported(bench), 0, 0
    read = bench.store.read_backup

    async def counted(path: Path) -> DesiredState:
        nonlocal reading, most
        reading += 1
        most = max(most, reading)
        try:
            return await read(path)
        finally:
            reading -= 1

    monkeypatch.setattr(bench.store, "read_backup", counted)
    restores = (bench.backups.restore(in_pieces(content)) for content in (backup, b"x", backup))
    answers = await asyncio.gather(*restores, return_exceptions=True)
    assert [isinstance(answer, Invalid) for answer in answers] == [False, True, False]
    assert most == 1
