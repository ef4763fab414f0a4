"""Shadowsocks with its SIP003 plugins that the engine has built in."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any


def ss(fields: Mapping[str, Any]) -> dict[str, Any]:
    """https://sing-box.sagernet.org/configuration/outbound/shadowsocks/"""
    options: dict[str, Any] = {
        "type": "shadowsocks",
        "method": fields["cipher"],
        "password": fields["password"],
    }
    plugin = fields.get("plugin")
    if plugin is not None:
        given = fields.get("plugin-opts", {})
        if plugin == "obfs":
            options |= {"plugin": "obfs-local", "plugin_opts": _options(_obfs(given))}
        else:
            options |= {"plugin": "v2ray-plugin", "plugin_opts": _options(_v2ray(given))}
    if fields.get("udp-over-tcp", False):
        # Clash's default is 1, the engine's 2; both ends must agree.
        version = fields.get("udp-over-tcp-version", 1)
        options["udp_over_tcp"] = {"enabled": True, "version": version}
    return options


def _obfs(given: Mapping[str, Any]) -> dict[str, str]:
    # Clash's default host.
    return {"obfs": given["mode"], "obfs-host": given.get("host", "bing.com")}


def _v2ray(given: Mapping[str, Any]) -> dict[str, str]:
    options = {
        "mode": "websocket",
        "host": given.get("host", "bing.com"),
        "path": given.get("path", "/"),
        "mux": "1" if given.get("mux", True) else "0",
    }
    return {**options, "tls": ""} if given.get("tls", False) else options


def _options(options: Mapping[str, str]) -> str:
    """SIP003's option text: ``;``, ``=`` and backslash are escaped by a backslash."""
    return ";".join(f"{key}={_escaped(value)}" for key, value in options.items())


def _escaped(value: str) -> str:
    return re.sub(r"([\\;=])", r"\\\1", value)
