from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.support.api_device import Device


WHOLE = {
    "name": "scraper",
    "outbound_interface": "wan1",
    "port": 18080,
    "username": "office",
    "password": "correct horse",
    "is_enabled": True,
}


async def add(device: Device, *wanted: str) -> None:
    for offset, name in enumerate(wanted):
        body = WHOLE | {"name": name, "port": 18000 + offset}
        await device.answer("POST", "/proxy-services", body)


async def listed(device: Device) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = (await device.answer("GET", "/proxy-services"))["data"]
    return rows


async def test_a_created_service_is_listed_unchanged(device: Device) -> None:
    answer = await device.answer("POST", "/proxy-services", WHOLE)
    assert answer == {"msg": "proxy service scraper created", "id": 1}
    (row,) = await listed(device)
    assert row.pop("created_at").endswith("Z")
    assert row == {"id": 1, **WHOLE}


async def test_omitted_fields_have_defaults(device: Device) -> None:
    body = {"name": "open", "outbound_interface": "wan1", "port": 18080}
    await device.answer("POST", "/proxy-services", body)
    (row,) = await listed(device)
    assert (row["username"], row["password"], row["is_enabled"]) == ("", "", True)


@pytest.mark.parametrize("field", ["name", "outbound_interface", "port"])
async def test_a_missing_field_is_reported(device: Device, field: str) -> None:
    body = {name: value for name, value in WHOLE.items() if name != field}
    assert f"{field} is missing" in await device.problem("POST", "/proxy-services", body)


@pytest.mark.parametrize("field", list(WHOLE))
async def test_a_replacement_needs_every_field(device: Device, field: str) -> None:
    await add(device, "a")
    body = {name: value for name, value in WHOLE.items() if name != field}
    assert f"{field} is missing" in await device.problem("PUT", "/proxy-services/1", body)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("name", ""),
        ("name", "a" * 65),
        ("name", "a\nb"),
        ("name", 5),
        ("outbound_interface", ""),
        ("outbound_interface", "Interface:wan1"),
        ("outbound_interface", "a name"),
        ("outbound_interface", "*"),
        ("outbound_interface", None),
        ("port", 0),
        ("port", 65536),
        ("port", "18080"),
        ("port", 18080.5),
        ("port", 22),
        ("port", 53),
        ("port", 8787),
        ("username", "a:b"),
        ("username", "a\x00b"),
        ("username", ""),
        ("password", "a\nb"),
        ("password", 5),
        ("is_enabled", 0),
        ("is_enabled", "false"),
    ],
)
async def test_an_invalid_value_is_reported(device: Device, field: str, value: Any) -> None:
    await add(device, "other")
    for method, path in (("POST", "/proxy-services"), ("PUT", "/proxy-services/1")):
        assert field in await device.problem(method, path, WHOLE | {field: value})
    assert [row["name"] for row in await listed(device)] == ["other"]


async def test_names_and_ports_are_unique(device: Device) -> None:
    await device.answer("POST", "/proxy-services", WHOLE)
    text = await device.problem("POST", "/proxy-services", WHOLE)
    assert "name " in text
    assert "port " in text


async def test_the_quota_is_shown_and_enforced(device: Device) -> None:
    device.bench.quota = 2
    await add(device, "a")
    assert await device.answer("GET", "/proxy-services/quota") == {"quota": 2, "used": 1}
    await device.answer("POST", "/proxy-services", WHOLE)
    answer = await device.answer("POST", "/proxy-services", WHOLE | {"name": "b", "port": 18081})
    assert set(answer) == {"error"}
    assert "2 proxy services" in answer["error"]


async def test_a_service_is_replaced_disabled_and_deleted(device: Device) -> None:
    await add(device, "a")
    answer = await device.answer("PUT", "/proxy-services/1", WHOLE)
    assert answer == {"msg": "proxy service scraper saved", "id": 1}
    answer = await device.answer("PATCH", "/proxy-services/1/status", {"is_enabled": False})
    assert answer == {"msg": "proxy service scraper disabled", "id": 1, "is_enabled": False}
    assert (await listed(device))[0]["is_enabled"] is False
    answer = await device.answer("DELETE", "/proxy-services/1")
    assert answer == {"msg": "proxy service scraper deleted", "id": 1}
    assert await listed(device) == []


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("PUT", "/proxy-services/7", WHOLE),
        ("PATCH", "/proxy-services/7/status", {"is_enabled": True}),
        ("DELETE", "/proxy-services/7", None),
    ],
)
async def test_a_missing_service_is_a_business_failure(
    device: Device, method: str, path: str, body: Any
) -> None:
    answer = await device.answer(method, path, body)
    assert answer == {"error": "there is no proxy service with the id 7"}


async def test_several_services_are_disabled_and_deleted(device: Device) -> None:
    await add(device, "a", "b", "c")
    body = {"ids": [1, 2, 2, 99], "is_enabled": False}
    answer = await device.answer("PATCH", "/proxy-services/batch/status", body)
    assert answer == {"msg": "2 proxy services disabled", "updated": 2}
    answer = await device.answer("DELETE", "/proxy-services/batch", {"ids": [1, 3, 99]})
    assert answer == {"msg": "2 proxy services deleted", "deleted": 2}
    assert [row["name"] for row in await listed(device)] == ["b"]


async def test_services_are_imported_by_the_number_of_fields(device: Device) -> None:
    await add(device, "old")
    text = (
        "five,wan1,18101,u,p\nwan1,18102,u,p\nwan1,18103,u\nwan1,18104\nwan1\nfive,wan1,18105,u,p\n"
    )
    answer = await device.answer("POST", "/proxy-services/import", {"text": text, "replace": True})
    assert (answer["imported"], answer["skipped"]) == (4, 2), answer
    assert set(answer) == {"msg", "imported", "skipped"}
    assert "line 5" in answer["msg"]
    rows = await listed(device)
    assert [row["port"] for row in rows] == [18101, 18102, 18103, 18104]
    assert rows[0]["name"] == "five"
    assert (rows[1]["username"], rows[1]["password"]) == ("u", "p")


async def test_a_matching_etag_is_answered_with_304(device: Device) -> None:
    for path in ("/proxy-services", "/nodes"):
        etag = (await device.call("GET", path)).headers["etag"]
        response = await device.call("GET", path, headers={"if-none-match": etag})
        assert response.status_code == 304
