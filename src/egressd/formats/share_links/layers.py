"""TLS and transport in a link's parameters, as in Xray's proposal for VMess and VLESS.

https://github.com/XTLS/Xray-core/discussions/716; Trojan and AnyTLS links use the same words.
Shadowrocket's and trojan-go's words are read as well.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

from egressd.formats.fields import BOOLEAN, list_from_text
from egressd.formats.hosts import is_address, parse_host
from egressd.formats.json_text import read_object
from egressd.formats.layers import EARLY_DATA_HEADER, OTHER_NETWORKS, split_early_data
from egressd.formats.rows import Unreadable
from egressd.formats.share_links.parameters import Parameters
from egressd.model.errors import Invalid
from egressd.model.wording import Sentence, say

PARAMETER_OF: Final = {
    "servername": "sni",
    "client-fingerprint": "fp",
    "skip-cert-verify": "allowInsecure",
    "name-cert-verify": "vcn",
    "ech-opts": "ech",
    "reality-opts": "pbk",
    "reality-opts.public-key": "pbk",
    "reality-opts.short-id": "sid",
    "network": "type",
    "grpc-opts.grpc-service-name": "serviceName",
    "ws-opts.path": "path",
    "http-opts.path[1:]": "path[1:]",
    "ws-opts.early-data-header-name": "eh",
    "port": "",
}
"""Field of an entry -> the parameter it came from, if the names differ; empty for no parameter."""

_SECURITIES: Final = {
    **dict.fromkeys(("", "none", "false", "0", "off", "auto"), ""),
    **dict.fromkeys(("tls", "xtls", "true", "1", "on", "yes"), "tls"),
    "reality": "reality",
}
_OBFS_NETWORKS: Final = {"websocket": "ws", "none": "tcp"}
"""Shadowrocket's word for a transport -> the usual one, if they differ."""


def read_layers(
    query: Parameters,
    *,
    name_key: str,
    server: str,
    notes: list[Sentence],
    security: str = "",
    has_name_of_host: bool = False,
) -> dict[str, Any]:
    """Return the Clash fields of `query`: ``tls``, the server's name under `name_key`, transport.

    `security` is the default for a link that does not set it. With `has_name_of_host` the server's
    name is that of ``host`` if the link has no other and the server is an address: v2rayN, NekoBox
    and HomeProxy read it so with every transport. Values that were read as another value are added
    to `notes`. Raises Unreadable.
    """
    security = read_security(query, notes) or security
    config: dict[str, Any] = {"tls": True} if security else {}
    config |= read_tls(query, name_key=name_key, security=security)
    config |= _read_transport(query)
    if security and config.get("network") == "http":
        raise Unreadable("headerType must be none with TLS: the engine speaks HTTP/2 there")
    # For VMess the Host header of a WebSocket is the name already (`formats.layers.server_name`).
    is_known = name_key in config or (name_key == "servername" and "ws-opts" in config)
    if has_name_of_host and security and not is_known and is_address(server):
        config |= {name_key: name} if (name := _first_host(query)) else {}
    if config.get("network") == "grpc":
        name = config.get(name_key, server)
        if query.get("authority").lower() not in ("", name.lower()):
            raise Unreadable("authority must be the server's name (SNI), which the engine sends")
    return config


def _first_host(query: Parameters) -> str:
    """Return the first host of ``host``, or an empty text if that is no host."""
    try:
        return parse_host(query.get("host").partition(",")[0].strip())
    except ValueError:
        return ""


def read_security(query: Parameters, notes: list[Sentence]) -> str:
    """Return the security that a link names: ``tls``, ``reality`` or an empty text. Raises
    Unreadable.
    """
    if query.is_bare("tls"):
        raise Unreadable("tls must have a value: 1 or 0")
    has_both = query.has("security") and query.has("tls")
    key = "security" if query.has("security") or not query.has("tls") else "tls"
    word = query.get(key).lower()
    if word not in _SECURITIES:
        raise Unreadable("security must be none, tls or reality")
    if has_both and bool(_SECURITIES.get(query.get("tls").lower())) != bool(_SECURITIES[word]):
        raise Unreadable("tls must be the same as security when both are given")
    if word in ("auto", "false"):
        notes.append(say("taken-as", key=query.shown(key), word="none"))
    security = _SECURITIES[word]
    if query.has("pbk"):
        if word and not security:
            raise Unreadable("security must be reality when pbk is given")
        return "reality"
    return security


def read_tls(query: Parameters, *, name_key: str, security: str = "") -> dict[str, Any]:
    """Return the TLS fields of `query`, also when it does not turn TLS on. Raises Unreadable."""
    # A link that pins a certificate would be less safe than it says (see `engine_limits`).
    if query.get("pinSHA256") or query.get("pcs"):
        raise Unreadable("the link must not pin a certificate: the engine cannot")
    config: dict[str, Any] = {}
    if name := query.get("sni", "peer", "servername"):
        config[name_key] = name
    if alpn := list_from_text(query.get("alpn")):
        config["alpn"] = alpn
    if fingerprint := query.get("fp"):
        config["client-fingerprint"] = fingerprint
    if ech := query.get("ech"):
        # Xray's other form names a server to query for the configuration: the field's check refuses
        # it.
        config["ech-opts"] = {"enable": True, "config": ech.replace(" ", "+")}
    if query.is_on("allowInsecure", "insecure", "skip-cert-verify") or _is_unverified(query):
        config["skip-cert-verify"] = True
    if name := query.get("vcn", "verifyPeerCertByName", "verifyPeerCertInNames"):
        config["name-cert-verify"] = name
    if security == "reality":
        pairs = {"public-key": query.get("pbk"), "short-id": query.get("sid")}
        config["reality-opts"] = {key: value for key, value in pairs.items() if value}
    return config


def _is_unverified(query: Parameters) -> bool:
    return query.get("verify_cert").lower() in ("0", "false")


def read_udp(query: Parameters) -> dict[str, Any]:
    """Return Clash's ``udp`` switch from the parameter of that name. Other programs ignore it."""
    word = query.get("udp")
    return {"udp": BOOLEAN.from_text(word)} if word else {}


def needs_plain_tcp(query: Parameters) -> None:
    """Refuse a link of a protocol that has no transports but names one. Raises Unreadable."""
    if query.get("type", "network", "net").lower() not in ("", "tcp", "raw", "udp", "none"):
        raise Unreadable("type must be tcp: the engine has no other transport here")
    if query.get("headerType").lower() not in ("", "none"):
        raise Unreadable("headerType must be none: the engine has no other here")


def needs_no_reality(query: Parameters) -> None:
    """Refuse a link of a protocol that has no REALITY but names a key of it. Raises Unreadable."""
    if query.get("pbk"):
        raise Unreadable("pbk must not be given: the engine has no REALITY here")


def _read_transport(query: Parameters) -> dict[str, Any]:
    network = query.get("type", "network", "net").lower()
    network = OTHER_NETWORKS.get(network, network)
    header = query.get("headerType").lower()
    obfs = query.get("obfs").lower()
    meant = _OBFS_NETWORKS.get(obfs, obfs)
    if network:
        if meant not in ("", network, header):
            query.leave("obfs")
    elif obfs:
        header = "http" if obfs == "http" else header
        network = "tcp" if obfs == "http" else meant
    if not network and (query.is_on("ws") or (query.has("wspath") and not query.is_given("ws"))):
        network = "ws"
    if header not in ("none", network, "http" if network in ("", "tcp") else ""):
        query.leave("headerType")
    match network:
        case "" | "tcp":
            return _read_http(query) if header == "http" else {}
        case "ws" | "httpupgrade":
            return _read_websocket(network, query)
        case "grpc":
            name = _service_name(query)
            if query.get("mode").lower() not in ("gun", "grpc", "none"):
                query.leave("mode")
            return {"network": "grpc", "grpc-opts": {"grpc-service-name": name} if name else {}}
        case "h2" | "http":
            path, host = query.get("path"), query.get("host", "obfsParam")
            options: dict[str, Any] = {"path": path} if path else {}
            return {"network": "h2", "h2-opts": options | ({"host": _hosts(host)} if host else {})}
        case _:
            return {"network": network}  # the field's check refuses it by name


def _service_name(query: Parameters) -> str:
    """Return ``serviceName``, or ``path``, where Shadowrocket and others put the name."""
    name, path = query.get("serviceName"), query.get("path")
    if name and path not in ("/", name):
        query.leave("path")
    return name or (path if path != "/" else "")


def _hosts(text: str) -> list[str]:
    return [host.strip(" ") or host for host in text.split(",")]


def _read_http(query: Parameters) -> dict[str, Any]:
    options: dict[str, Any] = {}
    if method := query.get("method"):
        options["method"] = method
    if path := query.get("path"):
        options["path"] = path.split(",")
    if host := query.get("host", "obfsParam"):
        options["headers"] = {"Host": _hosts(host)}
    return {"network": "http", "http-opts": options}


def _read_websocket(network: str, query: Parameters) -> dict[str, Any]:
    options: dict[str, Any] = {}
    path, early = split_early_data(query.get("path", "wspath"))
    if network == "ws":
        early = query.get("ed") or early
    elif early:
        path = query.get("path", "wspath")  # the entry's check reports that it has no effect
    if path:
        options["path"] = path
    if headers := _websocket_headers(query):
        options["headers"] = headers
    if network == "ws" and early.isdecimal() and int(early[:9]):
        options["max-early-data"] = int(early[:9])
        options["early-data-header-name"] = query.get("eh") or EARLY_DATA_HEADER
    return {"network": network, "ws-opts": options}


def _websocket_headers(query: Parameters) -> dict[str, Any]:
    """Return the headers from ``host``. Shadowrocket has a parameter of its own for the host, which
    may also hold all headers as JSON.
    """
    host = query.get("host", "obfsParam", "wsHost")
    if host.startswith("{"):
        with suppress(Invalid):
            if headers := read_object(host, "obfsParam"):
                return headers
    return {"Host": host} if host else {}


# --- Writing. -------------------------------------------------------------------------------


def write_layers(fields: Mapping[str, Any], *, insecure: str = "allowInsecure") -> dict[str, str]:
    """Return `fields` (canonical, see `formats.layers`) as parameters. Empty ones mean nothing."""
    has_tls = fields.get("tls", False) or fields.get("network") == "h2"
    security = {"security": "tls" if has_tls else "none"}
    return {**security, **write_tls(fields, insecure=insecure), **_write_transport(fields)}


def write_tls(fields: Mapping[str, Any], *, insecure: str = "allowInsecure") -> dict[str, str]:
    """Return the TLS fields as parameters; REALITY sets ``security`` itself. `insecure` is the
    scheme's parameter for not verifying the server.
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
    """Return the parameter that `read_udp` reads."""
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
            query["type"] = "http"  # Xray's word: HTTP/1.1 is a header of its TCP
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
