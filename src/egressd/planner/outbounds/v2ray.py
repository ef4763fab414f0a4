"""VMess, VLESS and Trojan: one stream protocol each over the shared TLS and transports."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final
from uuid import UUID, uuid5

from egressd.model.outbounds import PacketEncoding, Tls, Trojan, VLess, VMess
from egressd.planner.outbounds import engine
from egressd.planner.outbounds.tls import tls
from egressd.planner.outbounds.transport import host_header, transport

_UUID: Final = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\Z")


def vmess(fields: Mapping[str, Any], **server: Any) -> VMess:
    """Return a VMess outbound: https://sing-box.sagernet.org/configuration/outbound/vmess/."""
    return VMess(
        **server,
        uuid=_user_id(fields["uuid"]),
        alter_id=fields.get("alterId", 0),
        security=fields.get("cipher", "auto"),
        packet_encoding=_packet_encoding(fields),
        global_padding=fields.get("global-padding", False),
        authenticated_length=fields.get("authenticated-length", False),
        tls=_tls(fields),
        transport=transport(fields, early_data=not engine.loses_early_data("vmess", fields)),
    )


def vless(fields: Mapping[str, Any], **server: Any) -> VLess:
    """Return a VLESS outbound: https://sing-box.sagernet.org/configuration/outbound/vless/."""
    return VLess(
        **server,
        uuid=_user_id(fields["uuid"]),
        flow=fields.get("flow", ""),
        packet_encoding=_packet_encoding(fields),
        tls=_tls(fields),
        transport=transport(fields),
    )


def trojan(fields: Mapping[str, Any], **server: Any) -> Trojan:
    """Return a Trojan outbound: https://sing-box.sagernet.org/configuration/outbound/trojan/."""
    return Trojan(
        **server, password=fields["password"], tls=tls(fields), transport=transport(fields)
    )


def _user_id(text: str) -> str:
    """Return a UUID unchanged, and for another text the UUID that Xray, mihomo and sing-box make of
    it.

    https://xtls.github.io/en/development/protocols/vless.html
    """
    return text if _UUID.match(text) else str(uuid5(UUID(int=0), text))


def _tls(fields: Mapping[str, Any]) -> Tls | None:
    """Return the TLS settings, or None. HTTP/2 always uses TLS, as in Clash, even if the entry does
    not say so.
    """
    if fields.get("tls", False) or fields.get("network") == "h2":
        return tls(fields, server_name=host_header(fields))
    return None


def _packet_encoding(fields: Mapping[str, Any]) -> PacketEncoding:
    """Return the packing of UDP.

    With XUDP each datagram carries its destination. Otherwise all datagrams of a socket go to the
    destination of its first one.
    """
    word = fields.get("packet-encoding", "xudp")
    packing: PacketEncoding = "" if word == "none" else word
    return packing
