from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from egressd.model.messages import LineStatus, Status

if TYPE_CHECKING:
    from tests.support.api_device import Device


NEEDED = {
    "type": "l2tp",
    "name": "l2tp_tokyo",
    "server": "vpn.example.com",
    "username": "office",
    "password": "correct horse",
}
WHOLE = NEEDED | {
    "port": 1702,
    "secret": "battery staple",
    "interface": "wan1",
    "comment": "Tokyo",
    "dns_profile": "custom",
    "dns_servers": ["1.1.1.1", "8.8.8.8"],
}
KEY = {"type": "l2tp", "name": "l2tp_tokyo"}


async def add(device: Device, *wanted: str) -> None:
    for name in wanted:
        body = NEEDED | {"type": name.partition("_")[0], "name": name}
        await device.answer("POST", "/vpn-lines", body)


async def lines(device: Device) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = (await device.answer("GET", "/vpn-lines"))["data"]
    return rows


async def test_a_created_line_is_listed_unchanged(device: Device) -> None:
    answer = await device.answer("POST", "/vpn-lines", WHOLE)
    assert answer["id"] == 1
    assert answer["msg"].startswith("line l2tp_tokyo created")
    assert await lines(device) == [{"id": 1, **WHOLE, "is_enabled": True, "is_online": False}]


@pytest.mark.parametrize(("kind", "port"), [("l2tp", 1701), ("pptp", 1723)])
async def test_omitted_fields_have_defaults(device: Device, kind: str, port: int) -> None:
    await add(device, f"{kind}_1")
    (row,) = await lines(device)
    assert row == {
        "id": 1,
        **NEEDED,
        "type": kind,
        "name": f"{kind}_1",
        "port": port,
        "secret": "",
        "interface": "auto",
        "comment": "",
        "dns_profile": "auto",
        "dns_servers": [],
        "is_enabled": True,
        "is_online": False,
    }


async def test_a_pptp_line_has_no_secret(device: Device) -> None:
    body = NEEDED | {"type": "pptp", "name": "pptp_1", "secret": "ignored"}
    await device.answer("POST", "/vpn-lines", body)
    assert (await lines(device))[0]["secret"] == ""


@pytest.mark.parametrize("secret", ["@/etc/shadow", "two\nlines", "x" * 256])
async def test_the_secret_of_a_pptp_line_is_ignored(device: Device, secret: str) -> None:
    body = WHOLE | {"type": "pptp", "name": "pptp_1", "secret": secret}
    await device.answer("POST", "/vpn-lines", body)
    body = body | {"is_enabled": True, "comment": "changed"}
    await device.answer("PUT", "/vpn-lines/pptp/pptp_1", body)
    assert [(row["secret"], row["comment"]) for row in await lines(device)] == [("", "changed")]


async def test_the_secret_of_a_pptp_line_must_be_a_string(device: Device) -> None:
    await device.answer("POST", "/vpn-lines", NEEDED | {"type": "pptp", "name": "pptp_1"})
    body = WHOLE | {"type": "pptp", "name": "pptp_1"}
    assert "secret must be" in await device.problem("POST", "/vpn-lines", body | {"secret": 5})
    del body["secret"]
    text = await device.problem("PUT", "/vpn-lines/pptp/pptp_1", body | {"is_enabled": True})
    assert "secret is missing" in text


async def test_the_online_state_of_a_line_is_that_of_netd(device: Device) -> None:
    await add(device, "l2tp_1")
    online = LineStatus(is_online=True, ip="10.9.0.2")
    device.bench.netd.shown = Status(state="running", revision=0, lines={"l2tp_1": online})
    assert (await lines(device))[0]["is_online"] is True


async def test_the_etag_of_the_list_changes_with_its_content(device: Device) -> None:
    await add(device, "l2tp_1")
    etag = (await device.call("GET", "/vpn-lines")).headers["etag"]
    known = {"if-none-match": etag}
    assert (await device.call("GET", "/vpn-lines", headers=known)).status_code == 304
    online = LineStatus(is_online=True, ip="10.9.0.2")
    device.bench.netd.shown = Status(state="running", revision=0, lines={"l2tp_1": online})
    assert (await device.call("GET", "/vpn-lines", headers=known)).status_code == 200


@pytest.mark.parametrize("field", list(NEEDED))
async def test_a_missing_field_is_reported(device: Device, field: str) -> None:
    body = {name: value for name, value in NEEDED.items() if name != field}
    assert f"{field} is missing" in await device.problem("POST", "/vpn-lines", body)


@pytest.mark.parametrize("field", [*WHOLE, "is_enabled"])
async def test_a_replacement_needs_every_field(device: Device, field: str) -> None:
    await add(device, "l2tp_tokyo")
    body = {k: v for k, v in (WHOLE | {"is_enabled": True}).items() if k != field}
    text = await device.problem("PUT", "/vpn-lines/l2tp/l2tp_tokyo", body)
    assert f"{field} is missing" in text


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("type", "wireguard"),
        ("type", "L2TP"),
        ("type", 5),
        ("name", "tokyo"),
        ("name", "l2tp_"),
        ("name", "L2TP_1"),
        ("name", "pptp_1"),
        ("name", "l2tp_elevenchars"),
        ("name", "l2tp_a b"),
        ("name", "l2tp_a;b"),
        ("server", ""),
        ("server", "-x"),
        ("server", "a b"),
        ("server", "a\nb"),
        ("server", 5),
        ("port", 0),
        ("port", 65536),
        ("port", "1701"),
        ("port", None),
        ("username", ""),
        ("username", "a\x00"),
        ("password", "a\nb"),
        ("password", "@/etc/shadow"),
        ("password", 5),
        ("secret", "a\rb"),
        ("interface", ""),
        ("interface", "Interface:wan1"),
        ("interface", "a name"),
        ("comment", "two\nlines"),
        ("dns_profile", "other"),
        ("dns_profile", ""),
        ("dns_servers", "1.1.1.1"),
        ("dns_servers", []),
        ("dns_servers", ["not an address"]),
        ("dns_servers", [5]),
        ("dns_servers", ["1.1.1.1"] * 9),
    ],
)
async def test_an_invalid_value_is_reported(device: Device, field: str, value: Any) -> None:
    await add(device, "l2tp_1")
    assert field in await device.problem("POST", "/vpn-lines", WHOLE | {field: value})
    body = WHOLE | {"is_enabled": True, field: value}
    assert field in await device.problem("PUT", "/vpn-lines/l2tp/l2tp_1", body)
    assert [row["name"] for row in await lines(device)] == ["l2tp_1"]


async def test_a_new_line_takes_no_is_enabled(device: Device) -> None:
    text = await device.problem("POST", "/vpn-lines", WHOLE | {"is_enabled": False})
    assert "is_enabled is not a field here" in text


async def test_names_are_unique(device: Device) -> None:
    await add(device, "l2tp_tokyo")
    assert "name" in await device.problem("POST", "/vpn-lines", WHOLE)


async def test_custom_dns_without_servers_is_refused(device: Device) -> None:
    body = NEEDED | {"dns_profile": "custom"}
    assert "dns_servers" in await device.problem("POST", "/vpn-lines", body)


async def test_a_line_is_replaced_and_renamed(device: Device) -> None:
    await add(device, "l2tp_old")
    await device.answer("POST", "/rules", {"ip": "10.0.0.5", "target_node": "Interface:l2tp_old"})
    body = WHOLE | {"is_enabled": False}
    answer = await device.answer("PUT", "/vpn-lines/l2tp/l2tp_old", body)
    assert set(answer) == {"msg"}
    assert answer["msg"].startswith("line l2tp_tokyo saved")
    assert await lines(device) == [{"id": 1, **body, "is_online": False}]
    rule = (await device.answer("GET", "/rules"))["data"][0]
    assert rule["target_node"] == "Interface:l2tp_tokyo"


async def test_the_type_of_a_line_cannot_change(device: Device) -> None:
    await add(device, "l2tp_1")
    body = WHOLE | {"type": "pptp", "name": "pptp_1", "is_enabled": True}
    assert "type" in await device.problem("PUT", "/vpn-lines/l2tp/l2tp_1", body)


async def test_a_missing_line_is_a_business_failure(device: Device) -> None:
    await add(device, "pptp_1")
    for name in ("l2tp_none", "pptp_1"):
        answer = await device.answer("PUT", f"/vpn-lines/l2tp/{name}", WHOLE | {"is_enabled": True})
        assert answer == {"error": f"there is no l2tp line {name}"}


async def test_an_unknown_type_is_reported(device: Device) -> None:
    text = await device.problem("PUT", "/vpn-lines/ipsec/l2tp_1", WHOLE | {"is_enabled": True})
    assert "type must be one of l2tp, pptp" in text


async def test_several_lines_are_enabled_and_disabled(device: Device) -> None:
    await add(device, "l2tp_1", "pptp_1", "l2tp_2")
    items = [
        {"type": "l2tp", "name": "l2tp_1"},
        {"type": "pptp", "name": "pptp_1"},
        {"type": "pptp", "name": "pptp_9"},
        {"type": "l2tp", "name": "l2tp_1"},
    ]
    body = {"items": items, "is_enabled": False}
    answer = await device.answer("PATCH", "/vpn-lines/status", body)
    assert answer == {"msg": "2 lines disabled", "updated": 2}
    assert [row["is_enabled"] for row in await lines(device)] == [False, False, True]


async def test_several_lines_are_deleted(device: Device) -> None:
    await add(device, "l2tp_tokyo", "l2tp_2")
    answer = await device.answer("DELETE", "/vpn-lines", {"items": [KEY, KEY]})
    assert answer == {"msg": "1 line deleted", "deleted": 1}
    assert [row["name"] for row in await lines(device)] == ["l2tp_2"]


@pytest.mark.parametrize(
    ("items", "place"),
    [
        (None, "items"),
        ({}, "items"),
        (["l2tp_1"], "items[0]"),
        ([{"type": "l2tp"}], "items[0].name is missing"),
        ([KEY, {"type": "x", "name": "l2tp_1"}], "items[1].type"),
        ([{"type": "l2tp", "name": "wan1"}], "items[0].name"),
        ([KEY | {"id": 5}], "items[0].id is not a field here"),
    ],
)
async def test_invalid_items_of_a_batch_are_reported(
    device: Device, items: Any, place: str
) -> None:
    assert place in await device.problem("DELETE", "/vpn-lines", {"items": items})
    body = {"items": items, "is_enabled": True}
    assert place in await device.problem("PATCH", "/vpn-lines/status", body)


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (
            "l2tp",
            "vpn.example.com,1702,u,p,s,l2tp_1,first\nvpn.example.com,u,p,s,l2tp_2,\nnonsense",
        ),
        ("pptp", "vpn.example.com,1702,u,p,pptp_1,first\nvpn.example.com,u,p,pptp_2,\nnonsense"),
    ],
)
async def test_lines_are_imported_and_updated(device: Device, kind: str, text: str) -> None:
    await add(device, f"{kind}_1")
    body = {"items": [{"type": kind, "name": f"{kind}_1"}], "is_enabled": False}
    await device.answer("PATCH", "/vpn-lines/status", body)
    answer = await device.answer("POST", "/vpn-lines/import", {"type": kind, "text": text})
    assert (answer["imported"], answer["skipped"]) == (2, 1), answer
    assert answer["errors"][0].startswith("line 3: ")
    assert set(answer) == {"msg", "imported", "skipped", "errors"}
    first, second = await lines(device)
    assert (first["id"], first["port"], first["comment"]) == (1, 1702, "first")
    assert first["is_enabled"] is True
    assert second["port"] == {"l2tp": 1701, "pptp": 1723}[kind]


async def test_imported_lines_can_be_numbered(device: Device) -> None:
    body = {
        "type": "pptp",
        "text": "a.example,u,p,,\nb.example,u,p,,",
        "autoLineName": True,
        "autoLineNameStartIndex": 5,
    }
    answer = await device.answer("POST", "/vpn-lines/import", body)
    assert answer["imported"] == 2, answer
    assert [row["name"] for row in await lines(device)] == ["pptp_5", "pptp_6"]


@pytest.mark.parametrize(
    ("kind", "row", "port", "username"),
    [
        ("pptp", "vpn.example.com,10086,pw,,first", 1723, "10086"),
        ("pptp", "vpn.example.com,10086,u,pw,,first", 10086, "u"),
        ("pptp", "vpn.example.com,10086,u,pw", 10086, "u"),
        ("pptp", "vpn.example.com,13800138000,pw", 1723, "13800138000"),
        ("l2tp", "vpn.example.com,1001,pw,psk,tokyo,note", 1701, "1001"),
        ("l2tp", "vpn.example.com,1702,1001,pw,psk,tokyo,note", 1702, "1001"),
        ("l2tp", "vpn.example.com,1702,1001,pw,psk", 1702, "1001"),
    ],
)
async def test_a_user_name_of_digits_is_distinguished_from_a_port(
    device: Device, kind: str, row: str, port: int, username: str
) -> None:
    body = {"type": kind, "text": row, "autoLineName": True}
    assert (await device.answer("POST", "/vpn-lines/import", body))["imported"] == 1
    (line,) = await lines(device)
    assert (line["port"], line["username"], line["name"]) == (port, username, f"{kind}_1")


async def test_a_pptp_line_with_another_port_has_a_warning(device: Device) -> None:
    body = NEEDED | {"type": "pptp", "name": "pptp_1", "port": 1724}
    assert "no other port than 1723" in (await device.answer("POST", "/vpn-lines", body))["msg"]
    body = NEEDED | {"type": "pptp", "name": "pptp_2", "port": 1723}
    assert "1723" not in (await device.answer("POST", "/vpn-lines", body))["msg"]


async def test_a_rename_cannot_close_a_loop(device: Device) -> None:
    await add(device, "l2tp_old")
    by_old = NEEDED | {"name": "l2tp_b", "interface": "l2tp_old"}
    await device.answer("POST", "/vpn-lines", by_old)
    body = WHOLE | {"name": "l2tp_new", "interface": "l2tp_b", "is_enabled": True}
    problem = await device.problem("PUT", "/vpn-lines/l2tp/l2tp_old", body)
    assert "interface must not lead in a circle: l2tp_new -> l2tp_b -> l2tp_new" in problem
    assert [row["name"] for row in await lines(device)] == ["l2tp_old", "l2tp_b"]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("type", "socks5"),
        ("text", 5),
        ("autoLineName", None),
        ("autoLineNameStartIndex", 1.5),
        ("replace", True),
    ],
)
async def test_an_invalid_import_is_refused(device: Device, field: str, value: Any) -> None:
    body = {"type": "l2tp", "text": "", field: value}
    assert field in await device.problem("POST", "/vpn-lines/import", body)
