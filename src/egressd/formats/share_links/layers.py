"""TLS and transport in a link's parameters, as Xray's proposal for VMess and VLESS has them.

https://github.com/XTLS/Xray-core/discussions/716; Trojan and AnyTLS links use the same words.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from egressd.formats.fields import BOOLEAN
from egressd.formats.layers import EARLY_DATA_HEADER, split_early_data
from egressd.formats.rows import Unreadable


def read_layers(query: Mapping[str, str], *, name_key: str) -> dict[str, Any]:
    """The Clash fields of `query`: ``tls``, the server's name under `name_key`, transport."""
    config: dict[str, Any] = {}
    security = query.get("security", "").lower()
    if security not in ("", "none", "tls", "xtls", "reality"):
        raise Unreadable("security must be none, tls or reality")
    if security not in ("", "none"):
        config["tls"] = True
    config |= read_tls(query, name_key=name_key)
    return config | _read_transport(query)


def read_tls(query: Mapping[str, str], *, name_key: str) -> dict[str, Any]:
    """The TLS fields of `query`, whether or not it says that there is TLS."""
    # A link that pins a certificate would be less safe than it says (see `config_json`).
    if query.get("pinSHA256") or query.get("pcs"):
        raise Unreadable("the link must not pin a certificate: the engine cannot")
    # So would one whose REALITY server has to sign with ML-DSA too.
    if query.get("pqv"):
        raise Unreadable("the link must not have pqv: the engine does not check ML-DSA signatures")
    if query.get("fm"):
        raise Unreadable("the link must not have fm: the engine has no such masks")
    config: dict[str, Any] = {}
    if name := query.get("sni") or query.get("peer"):
        config[name_key] = name
    if alpn := query.get("alpn"):
        config["alpn"] = alpn.split(",")
    if fingerprint := query.get("fp"):
        config["client-fingerprint"] = fingerprint
    if ech := query.get("ech"):
        # Xray's other form says where to ask for it: the field's check refuses that.
        config["ech-opts"] = {"enable": True, "config": ech}
    if any(is_true(query.get(key, "")) for key in ("allowInsecure", "insecure", "allow_insecure")):
        config["skip-cert-verify"] = True
    if query.get("security", "").lower() == "reality":
        pairs = {"public-key": query.get("pbk", ""), "short-id": query.get("sid", "")}
        config["reality-opts"] = {key: value for key, value in pairs.items() if value}
    return config


def read_udp(query: Mapping[str, str]) -> dict[str, Any]:
    """Clash's ``udp`` switch, under a parameter of that name; other programs pass it over."""
    return {"udp": BOOLEAN.from_text(query["udp"])} if query.get("udp") else {}


def is_true(text: str) -> bool:
    """Whether a parameter says yes."""
    return text.lower() in ("1", "true")


def _read_transport(query: Mapping[str, str]) -> dict[str, Any]:
    network = query.get("type", "").lower()
    path, host = query.get("path", ""), query.get("host", "")
    if network in ("", "tcp", "raw"):
        return _read_http(query) if query.get("headerType", "").lower() == "http" else {}
    if network in ("ws", "httpupgrade"):
        return _read_websocket(network, query)
    if network == "grpc":
        name = query.get("serviceName", "")
        return {"network": "grpc", "grpc-opts": {"grpc-service-name": name} if name else {}}
    if network in ("h2", "http"):
        options: dict[str, Any] = {"path": path} if path else {}
        return {"network": "h2", "h2-opts": options | ({"host": host.split(",")} if host else {})}
    return {"network": network}  # the field's check refuses it by name


def _read_http(query: Mapping[str, str]) -> dict[str, Any]:
    options: dict[str, Any] = {}
    if method := query.get("method"):
        options["method"] = method
    if path := query.get("path"):
        options["path"] = path.split(",")
    if host := query.get("host"):
        options["headers"] = {"Host": host.split(",")}
    return {"network": "http", "http-opts": options}


def _read_websocket(network: str, query: Mapping[str, str]) -> dict[str, Any]:
    options: dict[str, Any] = {}
    path, early = split_early_data(query.get("path", ""))
    early = query.get("ed") or early
    if path:
        options["path"] = path
    if host := query.get("host"):
        options["headers"] = {"Host": host}
    if network == "ws" and early.isdecimal() and int(early[:9]):
        options["max-early-data"] = int(early[:9])
        options["early-data-header-name"] = query.get("eh") or EARLY_DATA_HEADER
    return {"network": network, "ws-opts": options}


# --- The other way. -------------------------------------------------------------------------


def write_layers(fields: Mapping[str, Any]) -> dict[str, str]:
    """`fields` (canonical, see `formats.layers`) as parameters. Empty ones stand for nothing."""
    has_tls = fields.get("tls", False) or fields.get("network") == "h2"
    security = "tls" if has_tls else "none"
    return {"security": security, **write_tls(fields), **_write_transport(fields)}


def write_tls(fields: Mapping[str, Any], *, insecure: str = "allowInsecure") -> dict[str, str]:
    """The TLS fields as parameters; REALITY says so itself. `insecure`: the scheme's word for not
    verifying the server.
    """
    ech = fields.get("ech-opts", {})
    query = {
        "sni": fields.get("servername", ""),
        "alpn": ",".join(fields.get("alpn", [])),
        "fp": fields.get("client-fingerprint", ""),
        "ech": ech.get("config", "") if ech.get("enable", False) else "",
        insecure: "1" if fields.get("skip-cert-verify", False) else "",
    }
    if reality := fields.get("reality-opts"):
        query |= {
            "security": "reality",
            "pbk": reality["public-key"],
            "sid": reality.get("short-id", ""),
        }
    return query


def write_udp(fields: Mapping[str, Any]) -> dict[str, str]:
    """As `read_udp` reads it."""
    return {"udp": "1" if fields["udp"] else "0"} if "udp" in fields else {}


def _write_transport(fields: Mapping[str, Any]) -> dict[str, str]:
    network = fields.get("network", "tcp")
    query = {"type": network}
    match network:
        case "ws" | "httpupgrade":
            options = fields.get("ws-opts", {})
            path = options.get("path", "")
            query["host"] = _host(options.get("headers", {}))
            if early := options.get("max-early-data"):
                path = f"{path or '/'}{'&' if '?' in path else '?'}ed={early}"
                query["eh"] = options.get("early-data-header-name", "")
            query["path"] = path
        case "grpc":
            query["serviceName"] = fields.get("grpc-opts", {}).get("grpc-service-name", "")
        case "h2":
            options = fields.get("h2-opts", {})
            query["path"] = options.get("path", "")
            query["host"] = ",".join(options.get("host", []))
        case "http":
            options = fields.get("http-opts", {})
            query |= {
                "type": "tcp",
                "headerType": "http",
                "method": options.get("method", ""),
                "path": ",".join(options.get("path", [])),
                "host": ",".join(_host(options.get("headers", {})) or []),
            }
    return query


def _host(headers: Mapping[str, Any]) -> Any:
    return next((value for name, value in headers.items() if name.lower() == "host"), "")
