"""SOCKS5 (RFC 1928) and HTTP CONNECT proxies."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from egressd.planner.outbounds.tls import tls


def socks5(fields: Mapping[str, Any]) -> dict[str, Any]:
    """https://sing-box.sagernet.org/configuration/outbound/socks/"""
    return {"type": "socks", "version": "5", **_credentials(fields)}


def http(fields: Mapping[str, Any]) -> dict[str, Any]:
    """https://sing-box.sagernet.org/configuration/outbound/http/"""
    options: dict[str, Any] = {"type": "http", **_credentials(fields)}
    if fields.get("tls", False):
        options["tls"] = tls(fields)
    if "headers" in fields:
        options["headers"] = fields["headers"]
    return options


def _credentials(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {key: fields[key] for key in ("username", "password") if key in fields}
