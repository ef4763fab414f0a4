"""Shadowsocks, with the SIP003 plugins that the engine has built in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal

from egressd.formats.entries.shadowsocks import SHADOW_TLS_VERSION
from egressd.model.outbounds import Obfs, Shadowsocks, ShadowTls, V2rayPlugin

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
    plugin = _plugin(fields)
    if isinstance(plugin, ShadowTls) and not version:
        server["udp"] = False
    return Shadowsocks(
        **server,
        method=fields["cipher"],
        password=fields["password"],
        plugin=plugin,
        udp_over_tcp=version,
    )


def _plugin(fields: Mapping[str, Any]) -> Obfs | V2rayPlugin | ShadowTls | None:
    given = fields.get("plugin-opts", {})
    host = given.get("host", _HOST)
    match fields.get("plugin"):
        case None:
            return None
        case "shadow-tls":
            layer = given.get("version", SHADOW_TLS_VERSION)
            return ShadowTls(
                version=layer,
                password=given.get("password", "") if layer > 1 else "",
                host=given["host"],
                alpn=tuple(given.get("alpn", ())),
                # What browsers say includes TLS 1.3, which older versions do not work with.
                fingerprint=fields.get("client-fingerprint") if layer == 3 else None,
            )
        case "obfs":
            return Obfs(mode=given["mode"], host=host)
        case _:
            return V2rayPlugin(
                host=host,
                path=given.get("path", "/"),
                mux=given.get("mux", True),
                tls=given.get("tls", False),
            )
