"""``egressd backup`` and ``egressd restore``, on a running device and on a stopped one."""

from __future__ import annotations

import pwd
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from egressd.model.errors import Failed
from egressd_lab.lab import Lab
from tests.support.device import SERVER, eventually, send

pytestmark = [pytest.mark.lab, pytest.mark.usefixtures("nodes")]

WEB = f"http://{SERVER}/"


@contextmanager
def writes(lab: Lab) -> Iterator[list[str]]:
    """Post rules one after another during the block, and yield the addresses of those that
    succeeded.
    """
    ending = threading.Event()
    written: list[str] = []

    def write() -> None:
        for number in range(1, 60_000):
            if ending.is_set():
                return
            rule = {"ip": f"10.90.{number // 250}.{number % 250}", "target_node": "REJECT"}
            lab.api.post("/rules", rule)
            written.append(str(rule["ip"]))

    writer = threading.Thread(target=write)
    writer.start()
    try:
        eventually(lambda: len(written) > 3)
        yield written
    finally:
        ending.set()
        writer.join()


def rules(lab: Lab) -> dict[int, dict[str, object]]:
    return {rule["id"]: rule for rule in lab.api.get("/rules")["data"]}


def way_out(lab: Lab, client: int) -> str:
    """Return a client's address as the internet sees it, or an empty text when it is refused."""
    return lab.client(client).http(WEB).seen


def test_a_backup_made_during_changes_is_restored_and_in_force(lab: Lab, tmp_path: Path) -> None:
    file = tmp_path / "device.backup"
    send(lab, 1, "ss")
    send(lab, 2, "Interface:wan2")
    with writes(lab) as written:
        acknowledged = set(written)
        lab.device.run("backup", str(file))
    assert file.stat().st_mode & 0o777 == 0o600
    assert lab.api.ask("GET", "/ops/backup").status == 200
    backed_up = rules(lab)

    send(lab, 1, "socks5")
    send(lab, 3, "DIRECT")
    ss = next(node for node in lab.api.get("/nodes")["data"] if node["name"] == "ss")
    lab.api.delete(f"/nodes/{ss['id']}")
    assert way_out(lab, 1) == lab.nodes["socks5"].address
    assert way_out(lab, 3) == lab.wan(1).address
    undisturbed = lab.client(2).connect()

    assert "backup restored" in lab.device.run("restore", str(file))
    assert way_out(lab, 1) == lab.nodes["ss"].address
    assert way_out(lab, 2) == lab.wan(2).address
    assert way_out(lab, 3) == ""
    assert undisturbed.exchange("still there").ok
    undisturbed.close()
    restored = rules(lab)
    assert acknowledged <= {rule["ip"] for rule in restored.values()}
    assert all(backed_up[key] == rule for key, rule in restored.items())
    assert lab.api.get("/system/status")["status"] == "running"


@pytest.mark.parametrize("damage", ["cut", "overwritten", "foreign"])
@pytest.mark.parametrize("runs", [True, False], ids=["running", "stopped"])
def test_a_damaged_file_is_refused_and_nothing_changes(
    lab: Lab, tmp_path: Path, damage: str, runs: bool
) -> None:
    file = tmp_path / "device.backup"
    send(lab, 1, "ss")
    lab.device.run("backup", str(file))
    content = file.read_bytes()
    file.write_bytes(
        {
            "cut": content[: len(content) // 2],
            "overwritten": content[:4096] + b"\xff" * (len(content) - 4096),
            "foreign": b"PK\3\4" + content[4:],
        }[damage]
    )
    send(lab, 1, "socks5")
    before = rules(lab)
    if not runs:
        lab.device.stop()
    try:
        with pytest.raises(Failed, match="egressd: ") as refused:
            lab.device.run("restore", str(file))
    finally:
        if not runs:
            lab.device.start()
    assert len(refused.value.cause.splitlines()) == 1
    assert rules(lab) == before
    assert way_out(lab, 1) == lab.nodes["socks5"].address


def test_a_stopped_device_starts_with_the_restored_state(lab: Lab, tmp_path: Path) -> None:
    file = tmp_path / "device.backup"
    send(lab, 1, "ss")
    wanted = rules(lab)
    lab.device.stop()
    lab.device.run("backup", str(file))
    lab.device.start()
    send(lab, 1, "DIRECT")
    lab.device.stop()
    assert "when the service starts" in lab.device.run("restore", str(file))
    owner = pwd.getpwnam("egressd")
    data = lab.device.data / "api"
    assert {path.stat().st_uid for path in (data, *data.iterdir())} == {owner.pw_uid}
    lab.device.start()
    assert rules(lab) == wanted
    assert way_out(lab, 1) == lab.nodes["ss"].address


def test_a_restore_is_refused_if_the_running_service_does_not_answer(
    lab: Lab, tmp_path: Path
) -> None:
    file = tmp_path / "device.backup"
    send(lab, 1, "ss")
    lab.device.run("backup", str(file))
    send(lab, 1, "DIRECT")
    (lab.device.data / "api" / "api.sock").unlink()
    with pytest.raises(Failed, match="does not answer: restart it, or stop it"):
        lab.device.run("restore", str(file))
    assert way_out(lab, 1) == lab.wan(1).address
    lab.device.stop()
    lab.device.start()
    send(lab, 1, "Interface:wan2")
    assert way_out(lab, 1) == lab.wan(2).address


def test_an_unreadable_database_is_set_aside_on_request(lab: Lab, tmp_path: Path) -> None:
    file = tmp_path / "device.backup"
    send(lab, 1, "ss")
    wanted = rules(lab)
    lab.device.run("backup", str(file))
    lab.device.stop()
    database = lab.device.data / "api" / "state.db"
    database.write_bytes(b"\0" * 8192)
    with pytest.raises(Failed, match="not a SQLite database"):
        lab.device.run("restore", str(file))
    lab.device.run("restore", "--set-aside", str(file))
    assert database.with_name("state.db.bad-1").read_bytes() == b"\0" * 8192
    lab.device.start()
    assert rules(lab) == wanted
    assert way_out(lab, 1) == lab.nodes["ss"].address
