"""Configurations of Debian's v2ray, version 4, as the server of a proxy node. Pure.

It replaces dante and the v2ray plugin of Shadowsocks on releases that have neither. Names are
resolved as by those: by the namespace's resolver, since v2ray's own DNS is not configured.
https://www.v2fly.org/config/overview.html (sections of version 4)
"""

from __future__ import annotations

from typing import Any, Final

_TIMES_S: Final = {"connIdle": 600, "uplinkOnly": 0}
"""Seconds that a connection may be idle, and may go on after the far end has ended it. v2ray passes
no half-close on, so until then a client does not see the end.
"""
_BEHIND_PORT: Final = 8389


def socks(address: str, port: int, user: str, password: str) -> dict[str, Any]:
    """Return a SOCKS5 server with a password, for TCP and UDP."""
    settings = {
        "auth": "password",
        "accounts": [{"user": user, "pass": password}],
        "udp": True,
        "ip": address,
    }
    inbound = {"listen": address, "port": port, "protocol": "socks", "settings": settings}
    return _document([inbound])


def shadowsocks_in_websocket(
    address: str, port: int, path: str, method: str, password: str
) -> dict[str, Any]:
    """Return a Shadowsocks server for TCP, behind the server's side of the v2ray plugin.

    That side is a ``dokodemo-door`` within WebSocket, whose target's name marks the stream as one
    of Mux.Cool, and a ``freedom`` that leads each connection in it to the Shadowsocks server.
    """
    websocket = {
        "tag": "websocket",
        "listen": address,
        "port": port,
        "protocol": "dokodemo-door",
        "settings": {"address": "v1.mux.cool", "network": "tcp"},
        "streamSettings": {"network": "ws", "wsSettings": {"path": path}},
    }
    shadowsocks = {
        "listen": "127.0.0.1",
        "port": _BEHIND_PORT,
        "protocol": "shadowsocks",
        "settings": {"method": method, "password": password, "network": "tcp"},
    }
    inward = {
        "tag": "inward",
        "protocol": "freedom",
        "settings": {"redirect": f"127.0.0.1:{_BEHIND_PORT}"},
    }
    rule = {"type": "field", "inboundTag": ["websocket"], "outboundTag": "inward"}
    return {**_document([websocket, shadowsocks], [inward]), "routing": {"rules": [rule]}}


def _document(
    inbounds: list[dict[str, Any]], outbounds: list[dict[str, Any]] | None = None
) -> dict[str, Any]:
    """Return a configuration. Traffic that no rule matches leaves directly: the first outbound is
    the default one.
    """
    return {
        "log": {"loglevel": "warning"},
        "policy": {"levels": {"0": _TIMES_S}},
        "inbounds": inbounds,
        "outbounds": [{"protocol": "freedom"}, *(outbounds or [])],
    }
