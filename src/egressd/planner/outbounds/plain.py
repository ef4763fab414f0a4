"""SOCKS5 (RFC 1928) and HTTP CONNECT proxies."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from egressd.model.outbounds import HttpProxy, Socks5
from egressd.planner.outbounds.tls import tls


def socks5(fields: Mapping[str, Any], **server: Any) -> Socks5:
    """Return a SOCKS5 outbound: https://sing-box.sagernet.org/configuration/outbound/socks/."""
    return Socks5(**server, **_credentials(fields))


def http(fields: Mapping[str, Any], **server: Any) -> HttpProxy:
    """Return an HTTP outbound: https://sing-box.sagernet.org/configuration/outbound/http/."""
    return HttpProxy(
        **server,
        **_credentials(fields),
        tls=tls(fields) if fields.get("tls", False) else None,
        headers=tuple(fields.get("headers", {}).items()),
    )


def _credentials(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {key: fields[key] for key in ("username", "password") if key in fields}
