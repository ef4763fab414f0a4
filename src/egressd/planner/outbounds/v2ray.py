"""VMess, VLESS and Trojan: one stream protocol each over the shared TLS and transports."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from egressd.planner.outbounds import engine
from egressd.planner.outbounds.tls import tls
from egressd.planner.outbounds.transport import host_header, transport


def vmess(fields: Mapping[str, Any]) -> dict[str, Any]:
    """https://sing-box.sagernet.org/configuration/outbound/vmess/"""
    options: dict[str, Any] = {
        "type": "vmess",
        "uuid": fields["uuid"],
        "alter_id": fields.get("alterId", 0),
        "security": fields.get("cipher", "auto"),
        "packet_encoding": _packet_encoding(fields),
        **_layers(
            fields,
            server_name=host_header(fields),
            early_data=not engine.loses_early_data("vmess", fields),
        ),
    }
    if fields.get("global-padding", False):
        options["global_padding"] = True
    if fields.get("authenticated-length", False):
        options["authenticated_length"] = True
    return options


def vless(fields: Mapping[str, Any]) -> dict[str, Any]:
    """https://sing-box.sagernet.org/configuration/outbound/vless/"""
    return {
        "type": "vless",
        "uuid": fields["uuid"],
        "flow": fields.get("flow", ""),
        "packet_encoding": _packet_encoding(fields),
        **_layers(fields, server_name=host_header(fields)),
    }


def trojan(fields: Mapping[str, Any]) -> dict[str, Any]:
    """https://sing-box.sagernet.org/configuration/outbound/trojan/"""
    layers = _layers({**fields, "tls": True})
    return {"type": "trojan", "password": fields["password"], **layers}


def _layers(
    fields: Mapping[str, Any], *, server_name: str = "", early_data: bool = True
) -> dict[str, Any]:
    """TLS and transport. HTTP/2 goes over TLS whether the entry says so or not, as in Clash."""
    layers: dict[str, Any] = {}
    if fields.get("tls", False) or fields.get("network") == "h2":
        layers["tls"] = tls(fields, server_name=server_name)
    if made := transport(fields, early_data=early_data):
        layers["transport"] = made
    return layers


def _packet_encoding(fields: Mapping[str, Any]) -> str:
    """How UDP is packed; the engine's word for not at all is an empty one.

    Packed as XUDP each datagram says where it is for. Else all of one socket's go where its first
    one did.
    """
    word: str = fields.get("packet-encoding", "xudp")
    return "" if word == "none" else word
