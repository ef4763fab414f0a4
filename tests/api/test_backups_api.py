"""``/ops/backup`` and ``/ops/restore``."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import httpx
import pytest

from egressd.api.routes.backups import BACKUP_TYPE
from egressd.model.bounds import BACKUP_MAX

if TYPE_CHECKING:
    from starlette.types import Message

    from tests.support.api_device import Device

pytestmark = pytest.mark.slow


BACKUP = "http://device/ops/backup"
RESTORE = "http://device/ops/restore"
AS_BACKUP = {"content-type": BACKUP_TYPE}
CONFIG = json.dumps({"server": "203.0.113.7", "port": 1080})


async def restore(
    device: Device, content: bytes, query: str = "", **headers: str
) -> httpx.Response:
    sent = AS_BACKUP | {name.replace("_", "-"): value for name, value in headers.items()}
    return await device.client.post(RESTORE + query, content=content, headers=sent)


def changed(backup: bytes, folder: Path, statement: str) -> bytes:
    """Return the backup after a statement has changed it."""
    file = folder / "changed.db"
    file.write_bytes(backup)
    with closing(sqlite3.connect(file, isolation_level=None)) as db:
        db.execute(statement)
    return file.read_bytes()


async def test_a_backup_is_made_and_restored(device: Device) -> None:
    rule = {"ip": "10.0.0.5", "target_node": "DIRECT"}
    await device.answer("POST", "/rules", rule)
    before = await device.answer("GET", "/rules")
    backup = await device.client.get(BACKUP)
    assert backup.status_code == 200
    assert backup.headers["content-type"] == BACKUP_TYPE
    assert backup.headers["cache-control"] == "no-store"
    assert "attachment" in backup.headers["content-disposition"]
    await device.answer("DELETE", "/rules/1")
    await device.answer("POST", "/rules", rule | {"ip": "10.0.0.6"})
    answer = await restore(device, backup.content)
    assert answer.status_code == 200
    assert answer.json() == {"msg": "backup restored: 1 rule, 0 nodes, 0 lines, 0 proxy services"}
    assert await device.answer("GET", "/rules") == before


async def test_backup_and_restore_need_the_token_or_a_session(fresh_device: Device) -> None:
    stranger = fresh_device.client_at("192.0.2.99", token=None)
    for answer in (await stranger.get(BACKUP), await stranger.post(RESTORE, headers=AS_BACKUP)):
        assert answer.status_code == 401
        assert answer.json() == {"error": "API Token invalid"}
    session = {"cookie": "session=1"}
    assert (await stranger.get(BACKUP, headers=session)).status_code == 200


@pytest.mark.parametrize("content", [b"", b"x" * 5000])
async def test_an_invalid_backup_is_400(device: Device, content: bytes) -> None:
    await device.answer("POST", "/rules", {"ip": "10.0.0.5", "target_node": "DIRECT"})
    state = device.bench.state
    answer = await restore(device, content)
    assert answer.status_code == 400
    assert "the file is no backup that can be put back" in answer.json()["error"]
    assert device.bench.state is state


async def test_a_backup_with_invalid_values_is_400_and_names_the_field(
    device: Device, tmp_path: Path
) -> None:
    await device.answer("POST", "/rules", {"ip": "10.0.0.5", "target_node": "DIRECT"})
    backup = (await device.client.get(BACKUP)).content
    await device.answer("DELETE", "/rules/1")
    state = device.bench.state
    for statement, problem in (
        ("UPDATE rules SET target_node = 'Interface:lo'", "rule 1: target_node must not be lo"),
        ("UPDATE counters SET value = 9223372036854775807", "counters: rules must be from 0 to"),
        ("CREATE VIEW more AS SELECT 1", "the view 'more' is none of egressd's"),
    ):
        answer = await restore(device, changed(backup, tmp_path, statement))
        assert answer.status_code == 400
        assert problem in answer.json()["error"]
        assert device.bench.state is state


async def test_a_backup_of_an_older_egressd_is_accepted_on_request(
    device: Device, tmp_path: Path
) -> None:
    node = {"name": "hk-01", "protocol": "socks5", "config_json": CONFIG}
    for name in ("hk-01", "hk-02"):
        await device.answer("POST", "/nodes", node | {"name": name})
    rename = "UPDATE nodes SET name = 'hk-0l' WHERE name = 'hk-02'"
    backup = changed((await device.client.get(BACKUP)).content, tmp_path, rename)
    await device.answer("DELETE", "/nodes/batch", {"ids": [1, 2]})
    for query in ("", "?older=false"):
        answer = await restore(device, backup, query)
        assert answer.status_code == 400
        assert "must not look like another's: there is a node hk-01" in answer.json()["error"]
    for query in ("?older=yes_please", "?olden=true"):
        answer = await restore(device, backup, query)
        assert answer.status_code == 400
        assert query[1:6] in answer.json()["error"]
    assert (await restore(device, backup, "?older=true")).status_code == 200
    assert {row["name"] for row in (await device.answer("GET", "/nodes"))["data"]} == {
        "hk-01",
        "hk-0l",
    }


async def test_a_body_of_another_type_or_too_large_is_400(device: Device) -> None:
    answer = await restore(device, b"{}", content_type="application/json")
    assert (answer.status_code, BACKUP_TYPE in answer.json()["error"]) == (400, True)
    answer = await restore(device, b"x", content_length=str(BACKUP_MAX + 1))
    assert (answer.status_code, str(BACKUP_MAX) in answer.json()["error"]) == (400, True)


async def test_a_refusal_of_the_data_plane_is_500_and_changes_nothing(device: Device) -> None:
    backup = (await device.client.get(BACKUP)).content
    await device.answer("POST", "/rules", {"ip": "10.0.0.5", "target_node": "DIRECT"})
    state = device.bench.state
    device.bench.netd.behaviour = ["refuse"]
    answer = await restore(device, backup)
    assert answer.status_code == 500
    assert "the kernel would not" in answer.json()["error"]
    assert device.bench.state is state


async def test_a_backup_that_cannot_be_made_is_500(device: Device) -> None:
    device.bench.store.failing = ["backup"]
    answer = await device.client.get(BACKUP)
    assert answer.status_code == 500
    assert "disk is full" in answer.json()["error"]


async def test_backup_and_restore_are_in_the_openapi_document(device: Device) -> None:
    paths = (await device.client.get("http://device/ops/openapi.json")).json()["paths"]
    assert set(paths["/ops/backup"]["get"]["responses"]["200"]["content"]) == {BACKUP_TYPE}
    posted = paths["/ops/restore"]["post"]
    assert set(posted["requestBody"]["content"]) == {BACKUP_TYPE}
    assert set(posted["responses"]) == {"200", "400", "401", "403", "500"}
    ((older,),) = [posted["parameters"]]
    assert (older["name"], older["in"], older["required"]) == ("older", "query", False)
    page = (await device.client.get("http://device/ops/docs")).text
    assert f"<code>{BACKUP_TYPE}</code>" in page


async def test_an_interrupted_upload_changes_nothing_and_is_answered_with_400(
    device: Device,
) -> None:
    state = device.bench.state
    sent: list[Message] = []
    parts: list[Message] = [
        {"type": "http.request", "body": b"SQLite", "more_body": True},
        {"type": "http.disconnect"},
    ]

    async def receive() -> Message:
        return parts.pop(0)

    async def send(message: Message) -> None:
        sent.append(message)

    request = device.client.build_request("POST", RESTORE, content=b"", headers=AS_BACKUP)
    headers = [(k.lower(), v) for k, v in request.headers.raw if k.lower() != b"content-length"]
    scope = {
        "type": "http",
        "method": "POST",
        "path": "/ops/restore",
        "raw_path": b"/ops/restore",
        "query_string": b"",
        "headers": headers,
        "client": ("192.0.2.10", 1),
    }
    await device.app(scope, receive, send)
    assert [message.get("status") for message in sent if "status" in message] == [400]
    assert device.bench.state is state
