"""``/ops/trial``: changes that are taken back unless they are confirmed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import httpx

    from tests.support.api_device import Device

URL = "http://device/ops/trial"


async def post(device: Device, path: str = "", body: Any = None) -> httpx.Response:
    return await device.client.post(URL + path, json={} if body is None else body)


async def shown(device: Device) -> dict[str, Any]:
    answer: dict[str, Any] = (await device.client.get(URL)).json()
    return answer


async def test_changes_on_trial_are_confirmed(device: Device) -> None:
    assert not (await shown(device))["is_running"]
    begun = await post(device, body={"minutes": 7})
    assert begun.status_code == 200
    assert begun.json()["msg"].startswith("what changes from now on is taken back at 2025-")
    await device.answer("POST", "/rules", {"ip": "10.0.0.5", "target_node": "DIRECT"})
    trial = await shown(device)
    assert (trial["is_running"], trial["minutes"], trial["who"], trial["changes"]) == (
        True,
        7,
        "token",
        1,
    )
    again = await post(device)
    assert (again.status_code, "on trial already" in again.json()["error"]) == (409, True)
    confirmed = await post(device, "/confirm")
    assert confirmed.json() == {"msg": "confirmed: 1 change on trial stays"}
    assert (await post(device, "/confirm")).status_code == 404
    assert len((await device.answer("GET", "/rules"))["data"]) == 1


async def test_changes_on_trial_are_taken_back_at_once(device: Device) -> None:
    await post(device)
    await device.answer("POST", "/rules", {"ip": "10.0.0.5", "target_node": "DIRECT"})
    reverted = await post(device, "/revert")
    text = "the changes on trial taken back: rule 10.0.0.5 deleted"
    assert reverted.json() == {"msg": text}
    assert (await device.answer("GET", "/rules"))["data"] == []
    assert (await post(device, "/revert")).status_code == 404


async def test_bad_lengths_are_refused(device: Device) -> None:
    for minutes in (0, 61, -1, "5", 1.5, None):
        response = await post(device, body={"minutes": minutes})
        assert response.status_code == 400
        assert "minutes must be a whole number from 1 to 60" in response.json()["error"]
    assert not (await shown(device))["is_running"]
