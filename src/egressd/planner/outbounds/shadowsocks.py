"""Shadowsocks, with the SIP003 plugins that the engine has built in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal

from egressd.model.outbounds import Obfs, Shadowsocks, V2rayPlugin

_HOST: Final = "bing.com"
"""Clash's default host of both plugins."""


def ss(fields: Mapping[str, Any], **server: Any) -> Shadowsocks:
    """Return a Shadowsocks outbound.

    https://sing-box.sagernet.org/configuration/outbound/shadowsocks/
    """
    version: Literal[0, 1, 2] = 0
    if fields.get("udp-over-tcp", False):
        # Clash's default is 1, the engine's 2; both ends must agree.
        version = fields.get("udp-over-tcp-version", 1)
    return Shadowsocks(
        **server,
        method=fields["cipher"],
        password=fields["password"],
        plugin=_plugin(fields),
        udp_over_tcp=version,
    )


def _plugin(fields: Mapping[str, Any]) -> Obfs | V2rayPlugin | None:
    given = fields.get("plugin-opts", {})
    host = given.get("host", _HOST)
    match fields.get("plugin"):
        case None:
            return None
        case "obfs":
            return Obfs(mode=given["mode"], host=host)
        case _:
            return V2rayPlugin(
                host=host,
                path=given.get("path", "/"),
                mux=given.get("mux", True),
                tls=given.get("tls", False),
            )
