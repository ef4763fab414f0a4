"""The plan on disk: every accepted change, and no other."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from egressd.model.errors import Failed
from egressd.model.plan import (
    Change,
    Egress,
    GlobalPolicy,
    Limit,
    Patch,
    Plan,
    WhitelistPlan,
    difference,
)
from egressd.netd.reconciler.plan_file import PlanFile
from egressd.planner.rule_set import encode, name_of
from tests.support.nodes.instances import node_instance

FULL = Plan(
    revision=7,
    policy=GlobalPolicy(unmanaged=0x3000_0000, resolvers=("192.0.2.53",)),
    whitelist=WhitelistPlan(mark=0x3000_0000, ranges=("192.0.2.0-192.0.2.255",), tcp_ports=(80,)),
    hosts={"10.0.0.1": 0x1000_0001, "10.0.0.2": 0x4000_0000},
    nets={"10.1.0.0-10.1.255.255": 0x2000_0001},
    instances={"node:1": node_instance(1)},
    egresses={"wan1": Egress(number=1, resolvers=("192.0.2.53",))},
    limits={"10.0.0.1": Limit(number=1, upload_kbps=512, download_kbps=0)},
)


def store(file: PlanFile, plan: Plan, wanted: Plan) -> None:
    with file.writing(difference(plan, wanted)):
        pass


def loaded(path: Path) -> Plan | None:
    """Return the plan that a netd would find in the file."""
    with closing(PlanFile(path)) as file:
        return file.load()


def test_a_stored_plan_is_loaded_unchanged(tmp_path: Path) -> None:
    path = tmp_path / "netd" / "plan.db"
    file = PlanFile(path)
    assert file.load() is None
    store(file, Plan(), FULL)
    file.close()
    assert loaded(path) == FULL
    assert path.stat().st_mode & 0o777 == 0o600


CONTENT = encode(["a.test"])
OLD = {
    ("plan", "version"): 1,
    ("plan", "floor"): {"unmanaged": 0x3000_0000, "resolver": "192.0.2.53"},
    ("plan", "whitelist"): {
        "mark": 0x3000_0000,
        "ranges": ["192.0.2.0-192.0.2.255"],
        "sniffers": {0x2000_0001: 0x1400_0001},
        "tcp_ports": [80],
        "udp_ports": [],
        "rule_sets": {name_of(CONTENT): CONTENT},
        "epoch": 3,
    },
    ("instances", "node:1"): {"key": "node:1", "mark": 0x1000_0001, "config": "{}", "udp": True},
    ("groups", "group:1"): {"mark": 0x1800_0001, "members": ["node:1"]},
    ("egresses", "wan1"): {"number": 1, "resolver": "192.0.2.53", "otherwise": ""},
    ("egresses", "l2tp_1"): {"number": 2, "otherwise": "192.0.2.54"},
}
"""Rows of a plan whose instances were documents of the engine."""


def test_a_plan_with_instances_as_documents_keeps_everything_else(tmp_path: Path) -> None:
    path = tmp_path / "plan.db"
    file = PlanFile(path)
    store(file, Plan(), FULL)
    file.close()
    with closing(sqlite3.connect(path)) as db, db:
        for (table, key), value in OLD.items():
            row = (table, key, msgspec.msgpack.encode(value))
            db.execute("INSERT OR REPLACE INTO entry (tbl, key, value) VALUES (?, ?, ?)", row)
    plan = loaded(path)
    assert plan == replace(
        FULL,
        whitelist=replace(
            FULL.whitelist,
            sniffers={0x2000_0001: 0x1400_0001},
            rule_sets={name_of(CONTENT): CONTENT},
            epoch=3,
        ),
        instances={},
        egresses={
            "wan1": FULL.egresses["wan1"],
            "l2tp_1": Egress(number=2, default_resolvers=("192.0.2.54",)),
        },
    )
    again = PlanFile(path)
    assert again.load() == plan
    change = Change(base=7, revision=8, instances=Patch(put=FULL.instances))
    with again.writing(change):
        pass
    again.close()
    found = loaded(path)
    assert found is not None
    assert found.instances == FULL.instances


def test_a_stored_plan_that_fails_validation_is_not_loaded(tmp_path: Path) -> None:
    path = tmp_path / "plan.db"
    file = PlanFile(path)
    store(file, Plan(), replace(FULL, hosts={"10.0.0.1 }; flush ruleset": 0x1000_0001}))
    file.close()
    assert loaded(path) is None


def test_a_change_writes_its_differences_only(tmp_path: Path) -> None:
    file = PlanFile(tmp_path / "plan.db")
    store(file, Plan(), FULL)
    change = Change(
        base=7, revision=8, hosts=Patch(put={"10.0.0.3": 0x3000_0000}, drop=("10.0.0.2",))
    )
    with file.writing(change):
        pass
    file.close()
    found = loaded(tmp_path / "plan.db")
    assert found is not None
    assert found.revision == 8
    assert found.hosts == {"10.0.0.1": 0x1000_0001, "10.0.0.3": 0x3000_0000}
    assert found.instances == FULL.instances


def test_a_change_that_fails_halfway_is_not_stored(tmp_path: Path) -> None:
    file = PlanFile(tmp_path / "plan.db")
    store(file, Plan(), FULL)
    change = Change(base=7, revision=8, hosts=Patch(drop=("10.0.0.1",)))
    with pytest.raises(ZeroDivisionError), file.writing(change):
        raise ZeroDivisionError
    assert file.load() == FULL
    file.close()


@pytest.mark.parametrize("damage", ["garbage", "truncated", "empty-table", "other version"])
def test_a_damaged_plan_is_not_loaded(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "plan.db"
    file = PlanFile(path)
    store(file, Plan(), FULL)
    file.close()
    match damage:
        case "garbage":
            path.write_bytes(b"not a database" * 100)
        case "truncated":
            path.write_bytes(path.read_bytes()[:5000])
        case "empty-table":
            with sqlite3.connect(path) as db:
                db.execute("DELETE FROM entry WHERE key = 'revision'")
            db.close()
        case "other version":
            with sqlite3.connect(path) as db:
                db.execute("UPDATE entry SET value = x'63' WHERE key = 'version'")
            db.close()
    again = PlanFile(path)
    assert again.load() is None
    store(again, Plan(), FULL)
    again.close()
    assert loaded(path) == FULL


def test_an_unwritable_file_is_an_error(tmp_path: Path) -> None:
    blocked = tmp_path / "blocked"
    blocked.write_text("a file where the folder should be")
    file = PlanFile(blocked / "plan.db")
    with pytest.raises(Failed), file.writing(Change(base=0, revision=1)):
        pass


def test_temporary_or_empty_changes_proceed_without_the_file(tmp_path: Path) -> None:
    (tmp_path / "no folder").touch()
    file = PlanFile(tmp_path / "no folder" / "plan.db")
    halt = Change(base=7, revision=7, policy=GlobalPolicy(stopped=True))
    done = []
    with file.writing(halt, must_last=False):
        done.append("halted")
    with file.writing(Change(base=7, revision=7)):
        done.append("regrouped")
    assert done == ["halted", "regrouped"]
    with pytest.raises(Failed, match="write the plan file"), file.writing(halt):
        done.append("never")
    with pytest.raises(KeyError), file.writing(halt, must_last=False):
        raise KeyError
    assert len(done) == 2
