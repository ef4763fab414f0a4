"""Clash's ``network`` and its options as a transport.

https://sing-box.sagernet.org/configuration/shared/v2ray-transport/
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from egressd.formats.hosts import parse_host
from egressd.model.outbounds import Grpc, HttpStream, HttpUpgrade, Transport, WebSocket


def transport(fields: Mapping[str, Any], *, early_data: bool = True) -> Transport | None:
    """Return the transport of an outbound, or None for plain TCP.

    Without `early_data` a WebSocket's early data is left out, even if `fields` asks for it.
    """
    match fields.get("network", "tcp"):
        case "ws":
            return _websocket(fields.get("ws-opts", {}), early_data=early_data)
        case "httpupgrade":
            return _upgrade(fields.get("ws-opts", {}))
        case "grpc":
            service = fields.get("grpc-opts", {}).get("grpc-service-name", "")
            return Grpc(service_name=service)
        case "h2":
            options = fields.get("h2-opts", {})
            return HttpStream(host=tuple(options.get("host", ())), path=options.get("path", "/"))
        case "http":
            return _http(fields.get("http-opts", {}))
        case _:
            return None


def host_header(fields: Mapping[str, Any]) -> str:
    """Return the host in the Host header of a WebSocket transport, or an empty string."""
    if fields.get("network") not in ("ws", "httpupgrade"):
        return ""
    text = _pop_host(dict(fields.get("ws-opts", {}).get("headers", {})))
    try:
        return parse_host(text)
    except ValueError:
        return ""


def _websocket(options: Mapping[str, Any], *, early_data: bool) -> WebSocket:
    asked = options if early_data and options.get("max-early-data") else {}
    return WebSocket(
        path=options.get("path", "/"),
        headers=tuple(options.get("headers", {}).items()),
        max_early_data=asked.get("max-early-data", 0),
        early_data_header_name=asked.get("early-data-header-name", ""),
    )


def _upgrade(options: Mapping[str, Any]) -> HttpUpgrade:
    headers = dict(options.get("headers", {}))
    host = _pop_host(headers)
    return HttpUpgrade(path=options.get("path", "/"), host=host, headers=tuple(headers.items()))


def _http(options: Mapping[str, Any]) -> HttpStream:
    """Return Clash's ``http-opts`` as HTTP/1.1. The engine takes one of several paths."""
    headers: dict[str, list[str]] = dict(options.get("headers", {}))
    host = next((headers.pop(name) for name in list(headers) if name.lower() == "host"), [])
    return HttpStream(
        method=options.get("method", "GET"),
        path=next(iter(options.get("path", [])), "/"),
        host=tuple(host),
        headers=tuple((name, tuple(values)) for name, values in headers.items()),
    )


def _pop_host(headers: dict[str, str]) -> str:
    return next((headers.pop(name) for name in list(headers) if name.lower() == "host"), "")
