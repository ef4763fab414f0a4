"""``/ops/alerts``."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from egressd.model.alerts import ALERTS, DEFAULT_ALERTS
from egressd.model.wording import as_sentence

if TYPE_CHECKING:
    from tests.support.api_device import Device

CHANNELS = "/ops/alerts/channels"
POLICY = "/ops/alerts/policy"
BODY = {"name": "phone", "url": "ntfys://ntfy.example.org/secret-topic", "via": "DIRECT"}
ASKS = {"accept": "application/problem+json"}


async def ask(device: Device, method: str, path: str, body: Any = None) -> Any:
    answer = await device.client.request(method, path, json=body)
    assert answer.is_success, answer.text
    return answer.json()


async def send(device: Device, method: str, path: str, body: Any, tag: str) -> Any:
    """Return the answer to a change that names the version that it was made against."""
    return await device.client.request(method, path, json=body, headers={"if-match": tag})


async def test_a_channel_is_made_shown_changed_and_deleted(device: Device) -> None:
    made = await device.client.post(CHANNELS, json=BODY)
    assert (made.status_code, made.headers["location"]) == (201, f"{CHANNELS}/1")
    (row,) = (await ask(device, "GET", CHANNELS))["data"]
    assert row == {
        "id": 1,
        "name": "phone",
        "service": "ntfys",
        "via": "DIRECT",
        "is_enabled": True,
        "created_at": row["created_at"],
        "waiting": 0,
    }
    assert made.json() == {**row, "msg": "alert channel phone created"}
    shown = await device.client.get(f"{CHANNELS}/1")
    assert (shown.json(), shown.headers["etag"]) == (row, made.headers["etag"])
    changed = await ask(device, "PATCH", f"{CHANNELS}/1", {"is_enabled": False})
    assert changed == {**row, "is_enabled": False, "msg": "alert channel phone saved"}
    assert await ask(device, "GET", f"{CHANNELS}/1") == {**row, "is_enabled": False}
    assert device.bench.ledger.state.alert_channels[1].url == BODY["url"]
    deleted = await ask(device, "DELETE", f"{CHANNELS}/1")
    assert deleted == {"msg": "alert channel phone deleted", "id": 1}
    assert (await ask(device, "GET", CHANNELS))["data"] == []
    for method, body in (("GET", None), ("PATCH", {}), ("DELETE", None)):
        missing = await device.client.request(method, f"{CHANNELS}/1", json=body)
        assert missing.status_code == 404


async def test_a_change_of_an_earlier_channel_is_refused(device: Device) -> None:
    one = f"{CHANNELS}/1"
    first = (await device.client.post(CHANNELS, json=BODY)).headers["etag"]
    # The URL is not shown, and belongs to the version.
    other = {"url": "ntfys://ntfy.example.org/other"}
    second = await send(device, "PATCH", one, other, first)
    assert second.status_code == 200
    assert second.headers["etag"] != first
    for method, body in (("PATCH", {"via": "DIRECT"}), ("DELETE", None)):
        late = await send(device, method, one, body, first)
        assert late.status_code == 412
        assert "alert channel phone has been changed since it was read" in late.text
    # Alerts that wait make no other version of it.
    assert (await device.client.get(one)).headers["etag"] == second.headers["etag"]
    assert (await send(device, "DELETE", one, None, second.headers["etag"])).is_success


async def test_a_change_of_an_earlier_policy_is_refused(device: Device) -> None:
    first = (await device.client.get(POLICY)).headers["etag"]
    wanted = {"on": ["wan.down"], "for_s": 0, "quiet": "", "channels": []}
    saved = await send(device, "PUT", POLICY, wanted, first)
    assert saved.status_code == 200
    late = await send(device, "PUT", POLICY, wanted | {"for_s": 9}, first)
    assert (late.status_code, (await ask(device, "GET", POLICY))["for_s"]) == (412, 0)
    assert (await device.client.get(POLICY)).headers["etag"] == saved.headers["etag"]


async def test_two_writers_of_a_channel_lose_no_update(device: Device) -> None:
    """They change different fields, and name no version."""
    await ask(device, "POST", CHANNELS, BODY)

    async def write(field: str, values: list[Any]) -> None:
        for value in values:
            await ask(device, "PATCH", f"{CHANNELS}/1", {field: value})
            assert (await ask(device, "GET", f"{CHANNELS}/1"))[field] == value

    names = [f"name-{number}" for number in range(50)]
    await asyncio.gather(write("name", names), write("is_enabled", [False, True] * 25))
    assert device.bench.ledger.state.alert_channels[1].url == BODY["url"]


async def test_two_writers_of_the_policy_lose_no_update(device: Device) -> None:
    """Each adds 1 to the same number, again and again, and reads anew after a 412."""
    refused = 0

    async def add() -> None:
        nonlocal refused
        for _ in range(50):
            status = 412
            while status == 412:
                now = await device.client.get(POLICY)
                await asyncio.sleep(0)
                body = {name: value for name, value in now.json().items() if name != "names"}
                body["for_s"] += 1
                status = (await send(device, "PUT", POLICY, body, now.headers["etag"])).status_code
                refused += status == 412
            assert status == 200

    before = (await ask(device, "GET", POLICY))["for_s"]
    await asyncio.gather(add(), add())
    assert (await ask(device, "GET", POLICY))["for_s"] == before + 100
    assert refused > 0


async def test_no_answer_and_no_change_shows_the_url(device: Device) -> None:
    await ask(device, "POST", CHANNELS, BODY)
    await ask(device, "PATCH", f"{CHANNELS}/1", {"url": "ntfys://ntfy.example.org/other-secret"})
    texts = [
        (await device.client.get(path)).text
        for path in (CHANNELS, f"{CHANNELS}/1", "/ops/changes", "/ops/alerts/sent", POLICY)
    ]
    assert "secret" not in "".join(texts)


@pytest.mark.parametrize(
    ("change", "pointer", "code"),
    [
        ({"url": "json://10.0.0.1/x"}, "/url", "errand-host-inner"),
        ({"url": "syslog://x"}, "/url", "alert-url-scheme"),
        ({"url": "not a url"}, "/url", "alert-url-form"),
        ({"name": ""}, "/name", "string-of-length"),
        ({"via": "nowhere"}, "/via", "target-missing"),
        ({"via": "REJECT"}, "/via", "via-blocks"),
    ],
)
async def test_a_fault_names_its_field(
    device: Device, change: dict[str, Any], pointer: str, code: str
) -> None:
    answer = await device.client.post(CHANNELS, json=BODY | change, headers=ASKS)
    assert answer.status_code == 400
    (found,) = answer.json()["errors"]
    assert (found["pointer"], found["code"]) == (pointer, code)
    assert (await ask(device, "GET", CHANNELS))["data"] == []


async def test_a_test_says_what_became_of_the_message(device: Device) -> None:
    await ask(device, "POST", CHANNELS, BODY)
    found = await ask(device, "POST", f"{CHANNELS}/1/test", {})
    assert found == {"is_sent": True, "reason": "", "reason_coded": None}
    device.bench.netd.alert_problem = lambda _: as_sentence("refused")
    found = await ask(device, "POST", f"{CHANNELS}/1/test", {})
    assert (found["is_sent"], found["reason"]) == (False, "refused")
    failed, sent = (await ask(device, "GET", "/ops/alerts/sent"))["data"]
    assert (failed["outcome"], failed["reason"], failed["alerts"]) == ("failed", "refused", 0)
    assert (sent["outcome"], sent["title"]) == ("sent", "gw1: a test of alerts")


async def test_the_policy_is_shown_and_replaced(device: Device) -> None:
    shown = await ask(device, "GET", POLICY)
    assert shown == {
        "on": [*DEFAULT_ALERTS],
        "for_s": 60,
        "quiet": "",
        "channels": [],
        "names": [*ALERTS],
    }
    await ask(device, "POST", CHANNELS, BODY)
    wanted = {"on": ["wan.down"], "for_s": 0, "quiet": "23:00-07:00", "channels": [1]}
    assert await ask(device, "PUT", POLICY, wanted) == {"msg": "alerts saved"}
    assert await ask(device, "GET", POLICY) == {**wanted, "names": [*ALERTS]}
    # The device's other settings leave it as it is.
    settings = await ask(device, "GET", "/ops/settings")
    await ask(device, "PUT", "/ops/settings", settings | {"check_interval_s": 60})
    assert await ask(device, "GET", POLICY) == {**wanted, "names": [*ALERTS]}
    for field, value in {
        "on": ["quota.high"],
        "for_s": -1,
        "quiet": "7-8",
        "channels": [9],
    }.items():
        answer = await device.client.put(POLICY, json=wanted | {field: value}, headers=ASKS)
        assert answer.status_code == 400
        assert answer.json()["errors"][0]["pointer"].startswith(f"/{field}")


async def test_a_deleted_channel_comes_back_by_undoing(device: Device) -> None:
    await ask(device, "POST", CHANNELS, BODY)
    wanted = {"on": ["wan.down"], "for_s": 0, "quiet": "", "channels": [1]}
    await ask(device, "PUT", POLICY, wanted)
    policy = device.bench.ledger.revision
    details = await ask(device, "GET", f"/ops/changes/{policy}")
    fields = {each["name"]: each["after"] for each in details["objects"][0]["fields"]}
    assert fields["alerts.channels"] == ["1"]
    await ask(device, "DELETE", f"{CHANNELS}/1")
    await ask(device, "POST", f"/ops/changes/{device.bench.ledger.revision}/undo", {})
    assert device.bench.ledger.state.alert_channels[1].url == BODY["url"]
    await ask(device, "POST", f"/ops/changes/{policy}/undo", {})
    assert (await ask(device, "GET", POLICY))["on"] == [*DEFAULT_ALERTS]
