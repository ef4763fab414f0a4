"""``/ops/devices``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from egressd.model.messages import DeviceNews, DhcpFrame, SeenNeighbour
from tests.support.dhcp import request

if TYPE_CHECKING:
    from tests.support.api_device import Device

DEVICES = "/ops/devices"
MAC = "02:00:5e:00:53:01"
ONE = f"{DEVICES}/{MAC}"
ASKS = {"accept": "application/problem+json"}


async def see(device: Device, mac: str = MAC, ip: str = "10.0.0.5") -> None:
    await device.devices.turn(0.0)
    frame = DhcpFrame("lan0", mac, request(mac, {12: b"<b>anna</b>"}))
    device.devices.take(DeviceNews((SeenNeighbour("lan0", ip, mac, 0),), (frame,)))


async def test_a_device_is_shown_with_its_rule(device: Device) -> None:
    empty = await device.client.get(DEVICES)
    assert empty.json() == {"total": 0, "without_rule": 0, "data": []}
    await see(device)
    await device.call("POST", "/rules", {"ip": "10.0.0.0/24", "target_node": "DIRECT"})
    found = (await device.client.get(DEVICES)).json()
    at = "2025-11-20T22:58:40Z"
    assert found["data"] == [
        {
            "mac": MAC,
            "name": "",
            "hostname": "bannab",
            "vendor": "",
            "is_random_mac": True,
            "addresses": [{"ip": "10.0.0.5", "interface": "lan0", "last_seen": at}],
            "first_seen": at,
            "last_seen": at,
            "is_online": True,
            "rule_id": None,
            "covered_by": "10.0.0.0/24",
            "tried": [],
            "is_bound": False,
            "comment": "",
        }
    ]
    assert (await device.client.get(ONE)).json() == found["data"][0]
    assert (await device.client.get(f"{DEVICES}/02-00-5E-00-53-01")).json() == found["data"][0]


async def test_a_list_is_bounded_and_known_by_its_tag(device: Device) -> None:
    for n in range(3):
        await see(device, f"02:00:5e:00:53:0{n}", f"10.0.0.{n}")
    some = await device.client.get(DEVICES, params={"limit": 2})
    assert (some.json()["total"], some.json()["without_rule"], len(some.json()["data"])) == (
        3,
        3,
        2,
    )
    again = await device.client.get(
        DEVICES, params={"limit": 2}, headers={"if-none-match": some.headers["etag"]}
    )
    assert (again.status_code, again.content) == (304, b"")
    await see(device, "02:00:5e:00:53:07", "10.0.0.7")
    other = await device.client.get(
        DEVICES, params={"limit": 2}, headers={"if-none-match": some.headers["etag"]}
    )
    assert other.status_code == 200
    assert (await device.client.get(DEVICES, params={"limit": 0})).status_code == 400


async def test_devices_are_found_by_all_words_of_a_search(device: Device) -> None:
    for n in range(4):
        await see(device, f"02:00:5e:00:5a:0{n}", f"10.9.0.{n + 10}")
    named = {"name": "Anna's Tablet", "comment": "kitchen"}
    assert (await device.client.patch(f"{DEVICES}/02:00:5e:00:5a:02", json=named)).is_success

    async def found(search: str, limit: int = 9) -> tuple[int, list[str]]:
        asked: dict[str, str | int] = {"search": search, "limit": limit}
        answer = (await device.client.get(DEVICES, params=asked)).json()
        return answer["total"], [row["mac"][-2:] for row in answer["data"]]

    assert await found("tablet ANNA") == (1, ["02"])
    assert await found("kitchen 10.9.0.12") == (1, ["02"])
    assert await found("tablet 10.9.0.13") == (0, [])
    assert await found("5a:03") == (1, ["03"])
    every = (await device.client.get(DEVICES)).json()
    assert (await found(" "))[0] == every["total"] >= 4
    assert (await found("10.9.0", limit=2))[0] == 4
    assert len((await found("10.9.0", limit=2))[1]) == 2
    for refused in ("x" * 201, "a\nb"):
        answer = await device.client.get(DEVICES, params={"search": refused})
        assert answer.status_code == 400


async def test_a_device_is_bound_to_the_rule_of_its_address(device: Device) -> None:
    mac = "02:00:5e:00:53:21"
    one = f"{DEVICES}/{mac}"
    await see(device, mac)
    tag = (await device.client.get(one)).headers["etag"]
    refused = await device.client.patch(one, json={"is_bound": True}, headers=ASKS)
    assert refused.status_code == 400
    (problem,) = refused.json()["errors"]
    assert (problem["pointer"], problem["code"]) == ("/is_bound", "device-without-rule")
    await device.call("POST", "/rules", {"ip": "10.0.0.5", "target_node": "DIRECT"})
    assert (await device.client.patch(one, json={"is_bound": "yes"})).status_code == 400
    done = await device.client.patch(one, json={"is_bound": True}, headers={"if-match": tag})
    assert done.json() == {"msg": f"device {mac} saved", "mac": mac}
    assert (await device.client.get(one)).json()["is_bound"]
    outdated = await device.client.patch(one, json={"is_bound": False}, headers={"if-match": tag})
    assert outdated.status_code == 412
    (shown,) = (await device.client.get("/svc/api/v1/rules")).json()["data"]
    assert "bound_mac" not in shown
    assert (await device.client.patch(one, json={"is_bound": False})).status_code == 200
    assert not (await device.client.get(one)).json()["is_bound"]


async def test_a_device_is_named_and_the_change_is_recorded(device: Device) -> None:
    await see(device)
    tag = (await device.client.get(ONE)).headers["etag"]
    body = {"name": "Anna's phone"}
    done = await device.client.patch(ONE, json=body, headers={"if-match": tag})
    assert done.json() == {"msg": "device Anna's phone saved", "mac": MAC}
    assert done.headers["etag"] == (await device.client.get(ONE)).headers["etag"] != tag
    late = await device.client.patch(ONE, json={"name": "x"}, headers={"if-match": tag})
    assert late.status_code == 412
    assert late.json() == {"error": f"the device {MAC} has been changed since it was read"}
    late = await device.client.delete(ONE, headers={"if-match": tag, **ASKS})
    assert (late.status_code, late.json()["errors"][0]["code"]) == (412, "device-changed")
    assert late.headers["content-type"] == ASKS["accept"]
    await device.client.patch(ONE, json={"comment": "old"}, headers={"if-match": "*"})
    found = (await device.client.get(ONE)).json()
    assert (found["name"], found["comment"]) == ("Anna's phone", "old")
    await device.journal.flush()
    assert [record.what for record in device.changes.records] == [f"PATCH {ONE}"] * 2
    gone = await device.client.delete(ONE)
    assert gone.json() == {"msg": f"device {MAC} forgotten", "mac": MAC}
    assert (await device.client.get(ONE)).json() == {"error": f"there is no device {MAC}"}
    assert (await device.client.get(ONE, headers=ASKS)).status_code == 404


async def test_unfit_requests_are_refused(device: Device) -> None:
    await see(device)
    for body in ({}, {"name": "a\nb"}, {"name": "x" * 65}, {"name": 7}, {"is_bound": True}):
        assert (await device.client.patch(ONE, json=body)).status_code == 400
    refused = await device.client.get(f"{DEVICES}/none", headers=ASKS)
    assert refused.status_code == 400
    (fault,) = refused.json()["errors"]
    assert (fault["pointer"], fault["code"]) == ("/mac", "mac-form")
    stranger = device.client_at("192.0.2.9", None)
    assert (await stranger.get(DEVICES)).status_code == 401
    assert (await stranger.patch(ONE, json={"name": "x"})).status_code == 401
