"""A row that cannot be used stops no other one, in imports of every kind."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pytest

if TYPE_CHECKING:
    from tests.support.api_device import Device


IMPORTS: Final[dict[str, tuple[str, dict[str, Any], str]]] = {
    "rules": ("/rules/import", {}, "10.0.0.{n},DIRECT,tv"),
    "socks5": ("/nodes/import", {"type": "socks5"}, "203.0.113.{n},1080,u,p,node{n}"),
    "ss": ("/nodes/import", {"type": "ss"}, "203.0.113.{n},8388,aes-256-gcm,p,node{n}"),
    "vlessvmess": (
        "/nodes/import",
        {"type": "vlessvmess"},
        "vless|0b1f4d5e-7f0f-4b0e-9c3b-0d7a5c9d2f11|203.0.113.{n}|443|tcp|tls|a||||||chrome|node{n}",
    ),
    "others": (
        "/nodes/import",
        {"type": "others"},
        "name: node{n}, type: trojan, server: 203.0.113.{n}, port: 443, password: p",
    ),
    "links": ("/nodes/import", {"type": "socks5"}, "socks5://203.0.113.{n}:1080#node{n}"),
    "lines": ("/vpn-lines/import", {"type": "l2tp"}, "203.0.113.{n},u,p,s,l2tp_{n},tv"),
    "services": ("/proxy-services/import", {}, "office{n},wan1,108{n},u,p"),
}


@pytest.mark.parametrize("character", ["\x00", "\x07", "\x7f", "\u2028"], ids=ascii)
@pytest.mark.parametrize("kind", IMPORTS)
async def test_a_row_with_control_characters_does_not_affect_the_others(
    device: Device, kind: str, character: str
) -> None:
    path, body, row = IMPORTS[kind]
    good, bad, better = (row.format(n=n) for n in (1, 2, 3))
    text = "\n".join((good, f"{bad[:2]}{character}{bad[2:]}", better))
    answer = await device.answer("POST", path, body | {"text": text})
    assert (answer["imported"], answer["skipped"]) == (2, 1), answer
