"""``/ops/backup`` and ``/ops/restore``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import httpx
import pytest

from egressd.api.routes.backups import BACKUP_TYPE
from egressd.model.bounds import BACKUP_MAX

if TYPE_CHECKING:
    from starlette.types import Message

    from tests.api.conftest import Device

pytestmark = pytest.mark.anyio

BACKUP = "http://device/ops/backup"
RESTORE = "http://device/ops/restore"
AS_BACKUP = {"content-type": BACKUP_TYPE}


async def restore(device: Device, content: bytes, **headers: str) -> httpx.Response:
    sent = AS_BACKUP | {name.replace("_", "-"): value for name, value in headers.items()}
    return await device.client.post(RESTORE, content=content, headers=sent)


async def test_there_and_back(device: Device) -> None:
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


async def test_only_with_the_token(fresh_device: Device) -> None:
    stranger = fresh_device.client_at("192.0.2.99", token=None)
    for answer in (await stranger.get(BACKUP), await stranger.post(RESTORE, headers=AS_BACKUP)):
        assert answer.status_code == 401
        assert answer.json() == {"error": "API Token invalid"}
    session = {"cookie": "session=1"}
    assert (await stranger.get(BACKUP, headers=session)).status_code == 200


@pytest.mark.parametrize("content", [b"", b"x" * 5000])
async def test_what_is_no_backup_is_400(device: Device, content: bytes) -> None:
    await device.answer("POST", "/rules", {"ip": "10.0.0.5", "target_node": "DIRECT"})
    state = device.bench.state
    answer = await restore(device, content)
    assert answer.status_code == 400
    assert "the file is no backup that can be put back" in answer.json()["error"]
    assert device.bench.state is state


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


async def test_both_are_in_the_document(device: Device) -> None:
    paths = (await device.client.get("http://device/ops/openapi.json")).json()["paths"]
    assert set(paths["/ops/backup"]["get"]["responses"]["200"]["content"]) == {BACKUP_TYPE}
    posted = paths["/ops/restore"]["post"]
    assert set(posted["requestBody"]["content"]) == {BACKUP_TYPE}
    assert set(posted["responses"]) == {"200", "400", "401", "500"}
    page = (await device.client.get("http://device/ops/docs")).text
    assert f"<code>{BACKUP_TYPE}</code>" in page


async def test_an_upload_that_is_broken_off_changes_nothing_and_is_no_fault(device: Device) -> None:
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
