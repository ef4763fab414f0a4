"""``/ops/changes``: the changes that were made, and undoing them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import httpx

    from tests.support.api_device import Device

OPS = "http://device/ops"
CODES = {"accept": "application/problem+json, application/json"}


async def undo(device: Device, revision: int, body: Any, **more: Any) -> httpx.Response:
    return await device.client.post(f"{OPS}/changes/{revision}/undo", json=body, **more)


async def listed(device: Device) -> list[dict[str, Any]]:
    response = await device.client.get(f"{OPS}/changes")
    assert response.status_code == 200, response.text
    data: list[dict[str, Any]] = response.json()["data"]
    return data


async def add_rule(device: Device) -> int:
    await device.answer("POST", "/rules", {"ip": "10.0.0.5", "target_node": "DIRECT"})
    return device.bench.ledger.revision


async def test_a_change_is_listed_shown_and_undone(device: Device) -> None:
    made = await add_rule(device)
    (change,) = await listed(device)
    assert change["text"] == "rule for 10.0.0.5 created"
    assert (change["who"], change["source"]) == ("token", "192.0.2.10")
    assert change["what"] == "POST /svc/api/v1/rules"
    assert (change["revision"], change["can_undo"], change["undone_by"]) == (made, True, None)

    shown = (await device.client.get(f"{OPS}/changes/{made}")).json()
    assert (shown["revision"], shown["total"]) == (made, 1)
    (rule,) = shown["objects"]
    assert (rule["kind"], rule["name"], rule["action"]) == ("rule", "10.0.0.5", "created")
    assert {"name": "target_node", "before": None, "after": "DIRECT"} in rule["fields"]

    would = (await undo(device, made, {"dry_run": True})).json()
    assert (would["msg"], would["revision"], would["total"]) == ("", None, 1)
    assert len(await listed(device)) == 1

    answer = (await undo(device, made, {})).json()
    assert answer["msg"] == f"change {made} undone: rule 10.0.0.5 deleted"
    assert answer["revision"] == made + 1
    assert (await device.answer("GET", "/rules"))["data"] == []
    last, first = await listed(device)
    assert (last["text"], last["undoes"]) == (answer["msg"], made)
    assert last["what"] == f"POST /ops/changes/{made}/undo"
    assert (first["undone_by"], first["can_undo"]) == (made + 1, False)


async def test_an_undo_tells_the_page_to_load_everything(device: Device) -> None:
    made = await add_rule(device)
    while not device.events.empty():
        device.events.get_nowait()
    await undo(device, made, {})
    event = device.events.get_nowait()
    assert event is not None
    assert (event.topic, event.subject) == ("change", "everything")


async def test_an_answer_to_the_page_has_its_revision(device: Device) -> None:
    made = await add_rule(device)
    rule_id = (await device.answer("GET", "/rules"))["data"][0]["id"]
    cookie = {"cookie": "session=1"}
    page = device.client_at("192.0.2.10", token=None)
    url = f"http://device/svc/api/v1/rules/{rule_id}"
    answer = (await page.delete(url, headers=CODES | cookie)).json()
    assert (answer["revision"], answer["msg_coded"]["code"]) == (made + 1, "rule-deleted")
    answer = (await undo(device, made + 1, {}, headers=CODES)).json()
    assert answer["revision"] == made + 2
    answer = (await device.client.delete(url, headers=CODES)).json()
    assert "revision" not in answer  # a program gets the answer of the specification


async def test_obstacles_are_answered_409_with_codes(device: Device) -> None:
    made = await add_rule(device)
    body = {"ip": "10.0.0.5", "target_node": "REJECT", "mac": "", "comment": "",
            "is_enabled": True, "upload_limit_kbps": 0, "download_limit_kbps": 0}  # fmt: skip
    rule_id = (await device.answer("GET", "/rules"))["data"][0]["id"]
    await device.answer("PUT", f"/rules/{rule_id}", body)
    response = await undo(device, made, {"dry_run": True})
    text = f"rule 10.0.0.5 has been changed by change {made + 1}"
    assert (response.status_code, response.json()) == (409, {"error": text})
    response = await undo(device, made, {}, headers=CODES)
    assert response.status_code == 409
    assert response.json()["errors"][0]["code"] == "undo-touched"
    await undo(device, made + 1, {})
    assert (await undo(device, made, {})).status_code == 200


async def test_unknown_revisions_are_refused(device: Device) -> None:
    response = await undo(device, 10**6, {})
    text = "there is no change 1000000, or it is not kept any more"
    assert (response.status_code, response.json()) == (404, {"error": text})
    response = await device.client.get(f"{OPS}/changes/1000000", headers=CODES)
    assert response.status_code == 404
    for bad in ("0", "x", "1.5"):
        assert (await device.client.get(f"{OPS}/changes/{bad}")).status_code == 400
    bodies: list[Any] = [{"dry_run": 1}, {"dry": True}, []]
    for wrong in bodies:
        assert (await undo(device, 1, wrong)).status_code == 400


async def test_secrets_of_nodes_are_never_shown(device: Device) -> None:
    config = {"server": "203.0.113.7", "port": 1080, "username": "u", "password": "p4ssw0rd"}
    body = {"name": "hk", "protocol": "socks5", "config_json": json.dumps(config), "group": ""}
    await device.answer("POST", "/nodes", body)
    made = device.bench.ledger.revision
    text = (await device.client.get(f"{OPS}/changes/{made}")).text
    assert "p4ssw0rd" not in text
    assert '"after":"***"' in text
