"""``/ops/alerts``."""

from __future__ import annotations

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
    assert answer.status_code == 200, answer.text
    return answer.json()


async def test_a_channel_is_made_shown_changed_and_deleted(device: Device) -> None:
    made = await ask(device, "POST", CHANNELS, BODY)
    assert made == {"msg": "alert channel phone created", "id": 1}
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
    assert await ask(device, "GET", f"{CHANNELS}/1") == row
    await ask(device, "PATCH", f"{CHANNELS}/1", {"is_enabled": False})
    changed = await ask(device, "GET", f"{CHANNELS}/1")
    assert changed == {**row, "is_enabled": False}
    assert device.bench.ledger.state.alert_channels[1].url == BODY["url"]
    deleted = await ask(device, "DELETE", f"{CHANNELS}/1")
    assert deleted == {"msg": "alert channel phone deleted", "id": 1}
    assert (await ask(device, "GET", CHANNELS))["data"] == []
    missing = await device.client.get(f"{CHANNELS}/1", headers=ASKS)
    assert missing.status_code == 404


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
