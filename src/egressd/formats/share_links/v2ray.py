"""``vless://``, ``trojan://`` and ``vmess://`` links.

VLESS: https://github.com/XTLS/Xray-core/discussions/716. VMess comes as v2rayN's JSON in base64
(https://github.com/2dust/v2rayN/wiki, "ver-2") and, rarely, in VLESS's shape.
"""

from __future__ import annotations

from typing import Any

from egressd.formats.config_json import NodeConfig
from egressd.formats.json_text import read_object, write_object
from egressd.formats.node_draft import ParsedNode
from egressd.formats.rows import Unreadable
from egressd.formats.share_links.layers import read_layers, read_udp, write_layers, write_udp
from egressd.formats.share_links.uri import (
    Uri,
    decoded,
    encoded,
    from_base64,
    link_to,
    port_or,
    split,
    to_base64,
)
from egressd.model.errors import Invalid

_PACKETS = {"packet": "packetaddr", "packetaddr": "packetaddr", "xudp": "xudp", "none": "none"}


def read_vless(link: str) -> ParsedNode:
    """``vless://uuid@host:port?…``"""
    uri = split(link)
    config = _read_common(uri)
    for key in ("flow", "encryption"):
        if value := uri.text(key):
            config[key] = value
    return ParsedNode("vless", config, uri.name)


def write_vless(config: NodeConfig, name: str) -> str:
    """The node as a ``vless://`` link."""
    fields = config.fields
    query = {
        "encryption": "none",
        "flow": fields.get("flow", ""),
        **write_layers(fields),
        "packetEncoding": fields.get("packet-encoding", ""),
        **write_udp(fields),
    }
    return link_to("vless", fields["uuid"], fields, query, name)


def read_trojan(link: str) -> ParsedNode:
    """``trojan://password@host:port?…``"""
    uri = split(link)
    security = uri.text("security").lower() or "tls"
    if security == "none":
        raise Unreadable("security must be tls or reality")
    config: dict[str, Any] = {
        "server": uri.host,
        "port": port_or(uri.port, 443),
        "password": decoded(uri.user),
        **read_layers({**uri.query, "security": security}, name_key="sni"),
        **read_udp(uri.query),
    }
    del config["tls"]  # always
    return ParsedNode("trojan", config, uri.name)


def write_trojan(config: NodeConfig, name: str) -> str:
    """The node as a ``trojan://`` link."""
    fields = config.fields
    query = {**write_layers({**fields, "tls": True}), **write_udp(fields)}
    user = encoded(fields["password"])
    return link_to("trojan", user, fields, query, name)


def read_vmess(link: str) -> ParsedNode:
    """``vmess://BASE64`` of v2rayN's JSON, or ``vmess://uuid@host:port?…``."""
    body = link.partition("://")[2]
    text = from_base64(body.partition("#")[0])
    if text is not None:
        return _read_v2rayn(text)
    uri = split(link)
    config = _read_common(uri)
    if cipher := uri.text("encryption"):
        config["cipher"] = cipher
    return ParsedNode("vmess", config, uri.name)


def write_vmess(config: NodeConfig, name: str) -> str:
    """The node as v2rayN's JSON in base64."""
    fields = config.fields
    query = {key: value for key, value in write_layers(fields).items() if value}
    network = query.pop("type")
    document = {
        "v": "2",
        "ps": name,
        "add": fields["server"],
        "port": str(fields["port"]),
        "id": fields["uuid"],
        "aid": str(fields.get("alterId", 0)),
        "scy": fields.get("cipher", "auto"),
        "net": network,
        "type": query.pop("headerType", "none"),
        "host": query.pop("host", ""),
        "path": query.pop("serviceName" if network == "grpc" else "path", ""),
        "tls": query.pop("security").replace("none", ""),
        **query,
        **({"packetEncoding": fields["packet-encoding"]} if "packet-encoding" in fields else {}),
        **write_udp(fields),
    }
    return "vmess://" + to_base64(write_object(document))


def _read_v2rayn(text: str) -> ParsedNode:
    try:
        document = read_object(text, "the link's JSON")
    except Invalid as invalid:
        raise Unreadable(str(invalid)) from None
    # Numbers come as numbers or as texts, depending on the program.
    given = {
        key: "" if value is None else str(value)
        for key, value in document.items()
        if not isinstance(value, dict | list)
    }
    query = {key: value for key, value in given.items() if key not in ("type", "tls", "v")}
    query |= {"type": given.get("net", ""), "security": given.get("tls", "")}
    query |= {"headerType": given.get("type", ""), "serviceName": given.get("path", "")}
    config: dict[str, Any] = {
        "server": given.get("add", ""),
        "port": port_or(given.get("port", "")),
        "uuid": given.get("id", ""),
        "alterId": port_or(given.get("aid", ""), 0),
        "cipher": given.get("scy") or "auto",
        **read_layers(query, name_key="servername"),
        **_read_packets(given.get("packetEncoding", "")),
        **read_udp(given),
    }
    return ParsedNode("vmess", config, given.get("ps", ""))


def _read_common(uri: Uri) -> dict[str, Any]:
    return {
        "server": uri.host,
        "port": port_or(uri.port),
        "uuid": decoded(uri.user),
        **read_layers(uri.query, name_key="servername"),
        **_read_packets(uri.text("packetEncoding")),
        **read_udp(uri.query),
    }


def _read_packets(word: str) -> dict[str, str]:
    return {"packet-encoding": _PACKETS[word]} if word in _PACKETS else {}
