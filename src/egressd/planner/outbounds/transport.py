"""Clash's ``network`` and its options as sing-box's ``transport`` object.

https://sing-box.sagernet.org/configuration/shared/v2ray-transport/
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from egressd.formats.hosts import parse_host


def transport(fields: Mapping[str, Any], *, early_data: bool = True) -> dict[str, Any]:
    """The ``transport`` of an outbound, or an empty object for plain TCP.

    Without `early_data` a WebSocket's is left out, though `fields` may ask for it.
    """
    match fields.get("network", "tcp"):
        case "ws":
            return _websocket(fields.get("ws-opts", {}), early_data=early_data)
        case "httpupgrade":
            return _upgrade(fields.get("ws-opts", {}))
        case "grpc":
            service = fields.get("grpc-opts", {}).get("grpc-service-name", "")
            return {"type": "grpc", "service_name": service}
        case "h2":
            options = fields.get("h2-opts", {})
            return {
                "type": "http",
                "host": options.get("host", []),
                "path": options.get("path", "/"),
            }
        case "http":
            return _http(fields.get("http-opts", {}))
        case _:
            return {}


def host_header(fields: Mapping[str, Any]) -> str:
    """The host that a WebSocket transport names in its Host header, or an empty string."""
    if fields.get("network") not in ("ws", "httpupgrade"):
        return ""
    text = _pop_host(dict(fields.get("ws-opts", {}).get("headers", {})))
    try:
        return parse_host(text)
    except ValueError:
        return ""


def _websocket(options: Mapping[str, Any], *, early_data: bool) -> dict[str, Any]:
    made: dict[str, Any] = {
        "type": "ws",
        "path": options.get("path", "/"),
        "headers": options.get("headers", {}),
    }
    if not early_data:
        return made
    if options.get("max-early-data"):
        made["max_early_data"] = options["max-early-data"]
    if "early-data-header-name" in options:
        made["early_data_header_name"] = options["early-data-header-name"]
    return made


def _upgrade(options: Mapping[str, Any]) -> dict[str, Any]:
    headers = dict(options.get("headers", {}))
    host = _pop_host(headers)
    made = {"type": "httpupgrade", "path": options.get("path", "/"), "headers": headers}
    return {**made, "host": host} if host else made


def _http(options: Mapping[str, Any]) -> dict[str, Any]:
    """HTTP/1.1 as Clash's ``http-opts`` has it. Of several paths the engine takes one."""
    headers: dict[str, list[str]] = dict(options.get("headers", {}))
    host = next((headers.pop(name) for name in list(headers) if name.lower() == "host"), [])
    return {
        "type": "http",
        "method": options.get("method", "GET"),
        "path": next(iter(options.get("path", [])), "/"),
        "host": host,
        "headers": headers,
    }


def _pop_host(headers: dict[str, str]) -> str:
    return next((headers.pop(name) for name in list(headers) if name.lower() == "host"), "")
