"""Rules, nodes, lines, proxy services and the whitelist under ``/ops``, with their versions."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    import httpx

    from tests.support.api_device import Device

PROBLEM = {"accept": "application/problem+json"}
SOCKS = '{"server": "203.0.113.7", "port": 1080}'
KINDS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "rules": ({"ip": "10.0.0.5", "target_node": "DIRECT"}, {"comment": "tv"}),
    "nodes": ({"name": "n", "protocol": "socks5", "config_json": SOCKS}, {"group": "hk"}),
    "lines": (
        {
            "type": "l2tp",
            "name": "l2tp_a",
            "server": "vpn.example.com",
            "username": "u",
            "password": "p",
            "dns_profile": "custom",
            "dns_servers": ["1.1.1.1"],
        },
        {"is_enabled": False, "dns_servers": ["9.9.9.9", "1.1.1.1"]},
    ),
    "proxy-services": (
        {"name": "s", "outbound_interface": "wan1", "port": 18080},
        {"username": "u", "password": "p"},
    ),
}
"""The body that makes an object of each kind, and some fields to change."""
EACH_KIND = pytest.mark.parametrize("kind", KINDS)


NOT_IN_V1 = {"change_ip_url", "change_ip_via", "subscription", "gone_at"}
"""Fields of nodes that only ``/ops`` has."""


async def send(device: Device, method: str, path: str, body: Any = None, tag: str = "") -> Any:
    headers = {"if-match": tag} if tag else {}
    more = {} if body is None else {"json": body}
    return await device.client.request(method, f"http://device/ops/{path}", headers=headers, **more)


async def made(device: Device, kind: str) -> httpx.Response:
    response: httpx.Response = await send(device, "POST", kind, KINDS[kind][0])
    assert response.status_code == 201, response.text
    return response


@EACH_KIND
async def test_an_object_is_made_and_shown_with_its_version(device: Device, kind: str) -> None:
    response = await made(device, kind)
    answer = response.json()
    assert response.headers["location"] == f"/ops/{kind}/{answer['id']}"
    assert "created" in answer.pop("msg")
    shown = await send(device, "GET", f"{kind}/{answer['id']}")
    assert shown.json() == answer
    assert shown.headers["etag"] == response.headers["etag"]
    v1 = "vpn-lines" if kind == "lines" else kind
    row = {field: value for field, value in answer.items() if field not in NOT_IN_V1}
    assert (await device.answer("GET", f"/{v1}"))["data"] == [row]


@EACH_KIND
async def test_an_answer_with_codes_has_version_and_location(device: Device, kind: str) -> None:
    response = await device.client.post(f"/ops/{kind}", json=KINDS[kind][0], headers=PROBLEM)
    answer = response.json()
    assert answer["msg_coded"]["code"] == "created"
    path = f"/ops/{kind}/{answer['id']}"
    assert response.headers["location"] == path
    assert response.headers["etag"] == (await device.client.get(path)).headers["etag"]
    assert response.headers["content-type"] == "application/json"


@EACH_KIND
async def test_a_change_sets_its_fields_alone(device: Device, kind: str) -> None:
    before = await made(device, kind)
    row, fields = before.json(), KINDS[kind][1]
    response = await send(device, "PATCH", f"{kind}/{row['id']}", fields)
    assert response.status_code == 200, response.text
    answer = response.json()
    assert answer.pop("msg")
    row.pop("msg")
    times = {"updated_at": answer["updated_at"]} if kind == "rules" else {}
    assert answer == row | fields | times
    assert response.headers["etag"] != before.headers["etag"]
    shown = await send(device, "GET", f"{kind}/{row['id']}")
    assert (shown.json(), shown.headers["etag"]) == (answer, response.headers["etag"])


@EACH_KIND
async def test_a_change_of_an_earlier_version_is_refused(device: Device, kind: str) -> None:
    first = await made(device, kind)
    path = f"{kind}/{first.json()['id']}"
    fields = KINDS[kind][1]
    second = await send(device, "PATCH", path, fields, first.headers["etag"])
    assert second.status_code == 200
    for method, body in (("PATCH", {}), ("DELETE", None)):
        response = await send(device, method, path, body, first.headers["etag"])
        assert response.status_code == 412
        assert response.json()["error"].endswith("has been changed since it was read")
    assert (await send(device, "GET", path)).headers["etag"] == second.headers["etag"]
    tags = f'"another", {second.headers["etag"]}'
    assert (await send(device, "PATCH", path, {}, tags)).status_code == 200
    assert (await send(device, "PATCH", path, {}, "*")).status_code == 200
    deleted = await send(device, "DELETE", path, tag=second.headers["etag"])
    assert (deleted.status_code, deleted.json()["id"]) == (200, first.json()["id"])
    assert (await send(device, "GET", path)).status_code == 404


@EACH_KIND
@pytest.mark.parametrize("headers", [{}, PROBLEM])
async def test_an_unknown_object_is_404(device: Device, kind: str, headers: dict[str, str]) -> None:
    url = f"http://device/ops/{kind}/99"
    for method in ("GET", "PATCH", "DELETE"):
        body: dict[str, str] | None = {} if method == "PATCH" else None
        response = await device.client.request(method, url, headers=headers, json=body)
        assert response.status_code == 404, response.text
        assert "99" in response.json()["detail" if headers else "error"]


@EACH_KIND
async def test_an_object_that_exists_already_is_409(device: Device, kind: str) -> None:
    first = await made(device, kind)
    again = await send(device, "POST", kind, KINDS[kind][0])
    assert again.status_code == 409
    others: dict[str, dict[str, Any]] = {
        "rules": {"ip": "10.0.0.6"},
        "nodes": {"name": "m"},
        "lines": {"name": "l2tp_b"},
        "proxy-services": {"name": "t", "port": 18081},
    }
    made_beside = await send(device, "POST", kind, KINDS[kind][0] | others[kind])
    assert made_beside.status_code == 201
    key = "ip" if kind == "rules" else "name"
    path = f"{kind}/{made_beside.json()['id']}"
    response = await send(device, "PATCH", path, {key: first.json()[key]})
    assert response.status_code == 409
    # In /svc/api/v1 the same is 400.
    v1 = "vpn-lines" if kind == "lines" else kind
    assert (await device.call("POST", f"/{v1}", KINDS[kind][0])).status_code == 400


@EACH_KIND
async def test_a_refusal_names_every_fault_and_changes_nothing(device: Device, kind: str) -> None:
    first = await made(device, kind)
    path = f"{kind}/{first.json()['id']}"
    field = "comment" if kind in ("rules", "lines") else "name"
    body = {field: "a\x00", "other": 1, "is_enabled" if kind != "nodes" else "group": None}
    response = await device.client.patch(f"http://device/ops/{path}", json=body, headers=PROBLEM)
    assert response.status_code == 400
    assert {each["pointer"] for each in response.json()["errors"]} == {f"/{name}" for name in body}
    assert (await send(device, "GET", path)).headers["etag"] == first.headers["etag"]


async def test_a_renamed_node_takes_its_rules_along(device: Device) -> None:
    node = (await made(device, "nodes")).json()
    await send(device, "POST", "rules", {"ip": "10.0.0.5", "target_node": "n"})
    await send(device, "PATCH", f"nodes/{node['id']}", {"name": "renamed"})
    (rule,) = (await device.answer("GET", "/rules"))["data"]
    assert rule["target_node"] == "renamed"


async def test_the_quota_of_proxy_services_is_409(device: Device) -> None:
    device.bench.quota = 1
    await made(device, "proxy-services")
    body = {"name": "t", "outbound_interface": "wan1", "port": 18081}
    response = await send(device, "POST", "proxy-services", body)
    assert response.status_code == 409
    assert "1 proxy services" in response.json()["error"]


async def test_the_type_of_a_line_is_no_field_of_a_change(device: Device) -> None:
    line = (await made(device, "lines")).json()
    response = await send(device, "PATCH", f"lines/{line['id']}", {"type": "pptp"})
    assert response.status_code == 400
    assert response.json()["error"].startswith("type is not a field here")


async def test_a_program_needs_api_access_and_a_session_does_not(device: Device) -> None:
    rule = (await made(device, "rules")).json()
    spent = device.admission.spent
    assert (await send(device, "GET", f"rules/{rule['id']}")).status_code == 200
    assert device.admission.spent == spent + 1
    device.admission.refused = "API_ACCESS_REQUIRED"
    response = await send(device, "PATCH", f"rules/{rule['id']}", {"comment": "a"})
    assert (response.status_code, response.json()) == (403, {"error": "API_ACCESS_REQUIRED"})
    session = device.client_at("192.0.2.5", token=None)
    answer = await session.patch(
        f"http://device/ops/rules/{rule['id']}",
        json={"comment": "a"},
        headers={"cookie": "session=1"},
    )
    assert answer.status_code == 200
    assert device.admission.spent == spent + 1


async def test_changes_are_recorded_and_published_by_kind(device: Device) -> None:
    await made(device, "lines")
    event = device.events.get_nowait()
    assert event is not None
    assert event.subject == "vpn-lines"


async def test_a_whitelist_is_replaced_if_it_is_still_the_same(device: Device) -> None:
    first = await send(device, "GET", "whitelist")
    body = {"domains": "example.com", "ips": "", "node": "DIRECT"}
    saved = await send(device, "PUT", "whitelist", body, first.headers["etag"])
    assert saved.status_code == 200
    assert saved.json() == body | {"msg": "whitelist saved"}
    late = await send(device, "PUT", "whitelist", body | {"ips": "1.1.1.1"}, first.headers["etag"])
    assert late.status_code == 412
    assert late.json() == {"error": "the whitelist has been changed since it was read"}
    now = await send(device, "GET", "whitelist")
    assert (now.json(), now.headers["etag"]) == (body, saved.headers["etag"])


# --- Two writers. -------------------------------------------------------------------------

EDITS = 500
"""The number of changes that each writer makes."""


@pytest.mark.slow
async def test_two_writers_of_one_field_lose_no_update(device: Device) -> None:
    """Each adds 1 to the same number, again and again, and reads anew after a 412."""
    rule = (await made(device, "rules")).json()
    path = f"rules/{rule['id']}"
    refused = 0

    async def add() -> None:
        nonlocal refused
        for _ in range(EDITS):
            status = 412
            while status == 412:
                now = await send(device, "GET", path)
                await asyncio.sleep(0)
                limit = now.json()["upload_limit_kbps"] + 1
                body = {"upload_limit_kbps": limit}
                status = (await send(device, "PATCH", path, body, now.headers["etag"])).status_code
                refused += status == 412
            assert status == 200

    await asyncio.gather(add(), add())
    assert (await send(device, "GET", path)).json()["upload_limit_kbps"] == 2 * EDITS
    assert refused > 0


@pytest.mark.slow
@EACH_KIND
async def test_two_writers_of_different_fields_lose_no_update(device: Device, kind: str) -> None:
    """Neither reads before it writes, nor names a version."""
    row = (await made(device, kind)).json()
    one, other = {
        "rules": ("comment", "mac"),
        "nodes": ("group", "name"),
        "lines": ("comment", "username"),
        "proxy-services": ("username", "name"),
    }[kind]

    async def write(field: str) -> None:
        for number in range(EDITS // 5):
            body = {field: f"{field}-{number}"}
            assert (await send(device, "PATCH", f"{kind}/{row['id']}", body)).status_code == 200

    await asyncio.gather(write(one), write(other))
    now = (await send(device, "GET", f"{kind}/{row['id']}")).json()
    last = EDITS // 5 - 1
    assert (now[one], now[other]) == (f"{one}-{last}", f"{other}-{last}")
