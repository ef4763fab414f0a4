from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.support.api_device import Device


WHOLE = {
    "domains": "example.com\nhttps://intranet.example.com:9443, *.example.org",
    "ips": "198.51.100.0/24,203.0.113.9",
    "node": "DIRECT",
}


async def test_an_untouched_whitelist_is_empty(device: Device) -> None:
    assert await device.answer("GET", "/whitelist") == {"domains": "", "ips": "", "node": "DIRECT"}


async def test_a_saved_whitelist_is_returned_unchanged(device: Device) -> None:
    assert await device.answer("PUT", "/whitelist", WHOLE) == {"msg": "whitelist saved"}
    assert await device.answer("GET", "/whitelist") == WHOLE


@pytest.mark.parametrize("field", list(WHOLE))
async def test_a_replacement_needs_every_field(device: Device, field: str) -> None:
    body = {name: value for name, value in WHOLE.items() if name != field}
    assert f"{field} is missing" in await device.problem("PUT", "/whitelist", body)


@pytest.mark.parametrize(
    ("field", "value", "told"),
    [
        ("domains", "good.example, bad example", "bad example"),
        ("domains", "ftp://example.com:21", "ftp://example.com:21"),
        ("domains", "https://example.com:0", "https://example.com:0"),
        ("domains", "https://example.com:65536", "https://example.com:65536"),
        ("domains", "https://example.com:https", "https://example.com:https"),
        ("domains", "example.com:8443", "example.com:8443"),
        ("domains", "*.*.example.com", "*.*.example.com"),
        ("domains", "bü cher.example", "bü cher.example"),
        ("domains", "-a.example", "-a.example"),
        ("domains", "192.0.2.1", "192.0.2.1"),
        ("domains", "https://", "https://"),
        ("domains", "a\x00b", "domains"),
        ("domains", ["example.com"], "domains"),
        ("ips", "10.0.0.5/24", "10.0.0.5/24"),
        ("ips", "::1", "::1"),
        ("ips", None, "ips"),
        ("node", "", "node"),
        ("node", "nobody", "node"),
        ("node", "Interface:wan1", "node"),
        ("node", 5, "node"),
    ],
)
async def test_invalid_entries_are_named(device: Device, field: str, value: Any, told: str) -> None:
    assert told in await device.problem("PUT", "/whitelist", WHOLE | {field: value})
    assert (await device.answer("GET", "/whitelist"))["domains"] == ""


async def test_international_names_are_accepted_and_returned_unchanged(device: Device) -> None:
    body = WHOLE | {"domains": "bücher.example, *.例え.test, quic://BÜCHER.example:8443"}
    assert await device.answer("PUT", "/whitelist", body) == {"msg": "whitelist saved"}
    assert await device.answer("GET", "/whitelist") == body


async def test_only_the_first_hundred_invalid_entries_are_reported(device: Device) -> None:
    text = await device.problem("PUT", "/whitelist", WHOLE | {"domains": "!," * 1000})
    assert text.count("domains: '!'") == 100
    assert text.endswith("; and 900 more")


async def test_concurrent_additions_and_removals_are_all_saved(device: Device) -> None:
    await device.answer("PUT", "/whitelist", WHOLE)
    changes = [{"add": [f"a{n}.test", f"192.0.2.{n}"]} for n in range(20)]
    changes += [{"remove": ["*.example.org, 203.0.113.9"]}, {"add": [" a0.test\u2003", ""]}, {}]
    patch = device.client.patch
    answers = await asyncio.gather(*(patch("/ops/whitelist", json=each) for each in changes))
    assert {answer.status_code for answer in answers} == {200}
    saved = await device.answer("GET", "/whitelist")
    domains, ips = saved["domains"].split("\n"), saved["ips"].split("\n")
    assert domains[:2] == ["example.com", "https://intranet.example.com:9443"]
    assert sorted(domains[2:]) == sorted(f"a{n}.test" for n in range(20))
    assert ips[0] == "198.51.100.0/24"
    assert sorted(ips[1:]) == sorted(f"192.0.2.{n}" for n in range(20))


async def test_an_invalid_entry_is_not_added(device: Device) -> None:
    await device.answer("PUT", "/whitelist", WHOLE)
    change = {"add": ["good.test", "10.0.0.1/8"]}
    answer = await device.client.patch("/ops/whitelist", json=change)
    assert answer.status_code == 400
    assert "ips: '10.0.0.1/8' must not have host bits" in answer.json()["error"]
    assert await device.answer("GET", "/whitelist") == WHOLE
