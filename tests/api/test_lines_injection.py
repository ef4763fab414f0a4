"""P6 at the API: a line's field takes a value unchanged, or refuses it and names the field.

`tests/test_injection.py` tests the daemons' files of such values, `tests/vm` that servers accept
the logins.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

import httpx
import pytest

from egressd.model.names import has_control_characters
from tests.support.hostile_text import PIECES

if TYPE_CHECKING:
    from tests.support.api_device import Device

pytestmark = pytest.mark.slow


WHOLE: Final = {
    "type": "l2tp",
    "name": "l2tp_1",
    "server": "vpn.example.com",
    "port": 1701,
    "username": "office",
    "password": "correct horse",
    "secret": "battery staple",
    "interface": "auto",
    "comment": "Tokyo",
    "dns_profile": "auto",
    "dns_servers": [],
}
CREDENTIALS: Final = ("username", "password", "secret")
FIELDS: Final = (*CREDENTIALS, "name", "server", "interface", "comment", "dns_profile")
ROW: Final = ("server", "port", "username", "password", "secret", "name", "comment")


def values(good: str) -> Iterator[str]:
    """Yield each piece alone, before and inside a good value, and far too much of it."""
    for piece in PIECES:
        yield from (piece, piece + good, f"{good[:5]}{piece}{good[5:]}")
        yield piece * (65_536 // len(piece))
    yield from ("\ud800", f"{good}\udfff")


def is_carried(field: str, value: str) -> bool | None:
    """Return True if a line may have this value, False if not, None if this short rule cannot
    decide.
    """
    if has_control_characters(value):
        return False
    if field in CREDENTIALS:
        return not value.startswith("@/") and (field == "username") <= len(value.encode()) <= 255
    return None


def assert_as_given(line: dict[str, Any], field: str, value: str) -> None:
    """Assert that the line has the value, and that its other fields are unchanged."""
    if field != "server":
        assert line[field] == value
    elif value.isascii():
        assert line[field] == value.lower()
    else:  # the name in DNS (RFC 5891), which leaves invisible characters out
        assert re.fullmatch(r"[a-z0-9][a-z0-9.-]*", line[field]), (value, line[field])
    assert {name: line[name] for name in WHOLE if name not in (field, "name")} == {
        name: WHOLE[name] for name in WHOLE if name not in (field, "name")
    }


async def send(device: Device, method: str, path: str, body: dict[str, Any]) -> httpx.Response:
    """Send a body with JSON's escapes, which can express code points that UTF-8 cannot."""
    kind = {"content-type": "application/json"}
    return await device.call(method, path, content=json.dumps(body), headers=kind)


async def delete(device: Device, line: dict[str, Any]) -> None:
    items = [{"type": line["type"], "name": line["name"]}]
    await device.answer("DELETE", "/vpn-lines", {"items": items})


async def stored(device: Device) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = (await device.answer("GET", "/vpn-lines"))["data"]
    return rows


@pytest.mark.parametrize("field", FIELDS)
async def test_a_field_is_refused_by_name_or_stored_unchanged(device: Device, field: str) -> None:
    kept = WHOLE | {"name": "l2tp_kept"}
    await device.answer("POST", "/vpn-lines", kept)
    before = await stored(device)
    accepted = 0
    for value in values(str(WHOLE[field])):
        body = WHOLE | {field: value}
        for method, path, sent in (
            ("POST", "/vpn-lines", body),
            ("PUT", "/vpn-lines/l2tp/l2tp_kept", body | {"is_enabled": True}),
        ):
            response = await send(device, method, path, sent)
            expected = is_carried(field, value)
            if response.status_code == 200:
                assert expected is not False, (method, value)
                line = (await stored(device))[-1]
                assert_as_given(line, field, value)
                accepted += 1
                await delete(device, line)
                if method == "PUT":
                    await device.answer("POST", "/vpn-lines", kept)
                    before = await stored(device)
            else:
                assert response.status_code == 400, response.text
                assert field in response.json()["error"], (method, value, response.text[:200])
                assert expected is not True, (method, value)
                assert await stored(device) == before
    assert accepted or field == "dns_profile"


@pytest.mark.parametrize("piece", PIECES, ids=ascii)
async def test_resolvers_are_addresses(device: Device, piece: str) -> None:
    for servers in ([piece], ["1.1.1.1", f"1.1.1.1.{piece}"]):
        body = WHOLE | {"dns_profile": "custom", "dns_servers": servers}
        response = await device.call("POST", "/vpn-lines", body)
        if servers == ["10.77.0.1"]:
            assert response.status_code == 200
        elif response.status_code == 200:
            pytest.fail(f"{servers} was taken")
        else:
            assert "dns_servers" in response.json()["error"]


@pytest.mark.parametrize("field", [*CREDENTIALS, "name", "server", "comment"])
async def test_an_imported_field_is_refused_or_stored_unchanged(device: Device, field: str) -> None:
    accepted = 0
    for value in values(str(WHOLE[field])):
        row = ",".join(
            '"' + str(part).replace('"', '""') + '"'
            for part in (value if name == field else WHOLE[name] for name in ROW)
        )
        body = {"type": "l2tp", "text": row}
        response = await send(device, "POST", "/vpn-lines/import", body)
        if response.status_code == 400:
            assert "text" in response.json()["error"], response.text
            assert "\\ud" in ascii(value), value  # a lone surrogate
            continue
        answer = response.json()
        lines = await stored(device)
        if answer["imported"]:
            assert answer["imported"] == len(lines) == 1, (value, answer)
            assert is_carried(field, value) is not False, value
            assert_as_given(lines[0], field, value)
            accepted += 1
            await delete(device, lines[0])
        else:
            assert not lines
            assert re.search(rf"{field}|the row|double quote", answer["errors"][0]), answer
            assert is_carried(field, value) is not True, value
    assert accepted
