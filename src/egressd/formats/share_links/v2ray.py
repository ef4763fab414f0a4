"""``vless://``, ``trojan://`` and ``vmess://`` links.

VLESS: https://github.com/XTLS/Xray-core/discussions/716. VMess links have three forms: v2rayN's
JSON in base64 (https://github.com/2dust/v2rayN/wiki, "ver-2"), VLESS's form, and Shadowrocket's
``method:uuid@host:port`` in base64, which it writes for VLESS too.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from egressd.formats.config_json import NodeConfig
from egressd.formats.entries.v2ray import VISION, VMESS_CIPHERS
from egressd.formats.hosts import is_address
from egressd.formats.json_text import parse_object, write_object
from egressd.formats.node_draft import ParsedNode, no_effect
from egressd.formats.rows import Unreadable, trimmed
from egressd.formats.share_links.layers import (
    PARAMETER_OF,
    read_layers,
    read_udp,
    write_layers,
    write_udp,
)
from egressd.formats.share_links.parameters import Parameters, parameters_of
from egressd.formats.share_links.plugin import OBFS_NAMES, plugin_of
from egressd.formats.share_links.result import node_of
from egressd.formats.share_links.uri import (
    Uri,
    decoded,
    encoded,
    from_base64,
    link_to,
    number_or,
    split,
    to_base64,
    unescaped,
)
from egressd.model.errors import Invalid
from egressd.model.wording import Sentence, say

_PACKETS: Final = {
    "packet": "packetaddr",
    "packetaddr": "packetaddr",
    "xudp": "xudp",
    "none": "none",
}
_PACKETS_WRITTEN: Final = {"packetaddr": "packet"}
_WITHOUT_TLS: Final = ("none", "auto", "false", "0", "off")
_XTLS: Final = {"2": VISION}
"""Shadowrocket's number for a flow. The flow of number 1 no longer exists."""


def read_vless(link: str) -> ParsedNode:
    """Read ``vless://uuid@host:port?…``. Raises Unreadable."""
    uri = split(link, needs_port=True)
    notes: list[Sentence] = []
    config = _read_common(uri, decoded(uri.user.rpartition(":")[2]).strip(), notes)
    flow = uri.query.get("flow").lower()
    if not flow and uri.query.get("xtls") not in ("", "0"):
        flow = _XTLS.get(uri.query.get("xtls"), "xtls")  # the field's check refuses the other
    if flow not in ("", "none"):
        config["flow"] = flow
    if encryption := uri.query.get("encryption"):
        config["encryption"] = encryption
    return node_of("vless", config, uri, notes)


def write_vless(config: NodeConfig, name: str) -> str:
    """Return the node as a ``vless://`` link."""
    fields = config.fields
    query = {
        "encryption": "none",
        "flow": fields.get("flow", ""),
        **write_layers(fields),
        **_write_packets(fields),
        **write_udp(fields),
    }
    return link_to("vless", encoded(fields["uuid"]), fields, query, name)


def read_trojan(link: str) -> ParsedNode:
    """Read ``trojan://password@host:port?…``. Raises Unreadable."""
    uri = split(link)
    query, notes = uri.query, list[Sentence]()
    _read_plugin(query)
    if query.has("security") and query.get("security").lower() in _WITHOUT_TLS:
        raise Unreadable("security must be tls or reality")
    if query.get("encryption").lower() not in ("", "none"):
        raise Unreadable("encryption must be none: the engine has no Shadowsocks inside Trojan")
    config: dict[str, Any] = {
        "server": uri.host,
        "port": number_or(uri.port, 443),
        "password": decoded(uri.user),
        **read_layers(
            query,
            name_key="sni",
            server=uri.host,
            notes=notes,
            security="tls",
            has_name_of_host=True,
        ),
        **read_udp(query),
    }
    del config["tls"]  # TLS is always on
    if query.get("tls").lower() in _WITHOUT_TLS:
        notes.append(no_effect("tls"))
    return node_of("trojan", config, uri, notes)


def write_trojan(config: NodeConfig, name: str) -> str:
    """Return the node as a ``trojan://`` link."""
    fields = config.fields
    query = {**write_layers({**fields, "tls": True}), **write_udp(fields)}
    if query.get("host") and not query["sni"] and is_address(fields["server"]):
        query["sni"] = fields["server"]  # or readers would take the host
    user = encoded(fields["password"])
    return link_to("trojan", user, fields, query, name)


def read_vmess(link: str) -> ParsedNode:
    """Read ``vmess://BASE64`` of v2rayN's JSON, ``vmess://uuid@host:port?…``, or Shadowrocket's
    form.

    Raises Unreadable.
    """
    body, _, fragment = unescaped(link).partition("://")[2].partition("#")
    encoded_part, _, query = body.partition("?")
    text = from_base64(decoded(encoded_part.rstrip("/")))
    if text is not None and trimmed(text).startswith("{"):
        return _read_v2rayn(trimmed(text), parameters_of(query), decoded(fragment))
    uri = split(link, needs_port=True)
    if not uri.user:
        raise Unreadable(
            "a vmess link must be vmess://BASE64 of v2rayN's JSON or of method:uuid@host:port, or "
            "vmess://uuid@host:port"
        )
    notes: list[Sentence] = []
    method, _, uuid = decoded(uri.user).rpartition(":")
    if standard := _STANDARD.fullmatch(f"{method}:{uuid}"):
        method, uuid = "", standard["uuid"]
        uri.query.add("type", standard["network"])
        uri.query.add("security", "tls" if standard["tls"] else "none")
        uri.query.add("sni", uri.query.get("tlsServerName"))
        uri.query.add("aid", standard["aid"])
    config = _read_common(uri, uuid.strip(), notes, has_name_of_host=True)
    if aid := uri.query.get("aid", "alterId"):
        config["alterId"] = number_or(aid)
    if cipher := uri.query.get("encryption", "scy", "cipher") or method:
        config["cipher"] = _cipher(cipher, "encryption", notes)
    return node_of("vmess", config, uri, notes)


_STANDARD: Final = re.compile(
    r"(?P<network>[a-z]+)(?P<tls>\+tls)?:(?P<uuid>[0-9a-fA-F-]{36})-(?P<aid>[0-9]{1,5})"
)
"""The user part of ``vmess://ws+tls:uuid-alterId@host:port``, a form that V2Ray once proposed
(https://github.com/v2fly/v2fly-github-io/issues/26) and v2rayN reads.
"""


def write_vmess(config: NodeConfig, name: str) -> str:
    """Return the node as v2rayN's JSON in base64."""
    fields = config.fields
    layers = write_layers(fields, insecure="insecure")
    network = layers.pop("type")
    network = _V2RAYN_NETWORKS.get(network, network)
    if network == "h2" and not layers["sni"] and is_address(fields["server"]):
        layers["sni"] = fields["server"]  # or readers would take the host
    query = {key: value for key, value in layers.items() if value}
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
        **_write_packets(fields),
        **write_udp(fields),
    }
    return "vmess://" + to_base64(write_object(document))


_V2RAYN_NETWORKS: Final = {"http": "h2"}
"""Transport in other links -> v2rayN's word, if they differ."""
_JSON_NAMES: Final = {"type": "headerType", "tls": "security"}
"""v2rayN's key -> the parameter of other links with the same meaning."""
_JSON_WORDS: Final = {**PARAMETER_OF, "network": "net", "grpc-opts.grpc-service-name": "path"}
_JSON_SHOWN: Final = {parameter: key for key, parameter in _JSON_NAMES.items()} | {
    "serviceName": "path"
}


def _read_v2rayn(text: str, beside: Parameters, fragment: str) -> ParsedNode:
    """Read v2rayN's JSON. `beside` has the link's parameters, where some programs put the name."""
    try:
        # A control character in the name is no reason to refuse a node.
        document = parse_object(text.rstrip("\0 \r\n\t"), "the link's JSON")
    except Invalid as invalid:
        raise Unreadable(str(invalid)) from None
    _part_host_and_path(document)
    shown = _JSON_SHOWN if "mode" in document else {**_JSON_SHOWN, "mode": "type"}
    query = Parameters(_pairs_of_json(document), shown)
    query.get("v")
    notes: list[Sentence] = []
    server = query.get("add").strip()
    cipher = query.get(*_JSON_CIPHERS)
    config: dict[str, Any] = {
        "server": server,
        "port": number_or(query.get("port")),
        "uuid": query.get("id").strip(),
        "alterId": number_or(query.get("aid", "alterId"), 0),
        "cipher": _cipher(cipher or "auto", _cipher_key(document), notes),
        **read_layers(
            query, name_key="servername", server=server, notes=notes, has_name_of_host=True
        ),
        **_read_packets(query),
        **read_udp(query),
    }
    name = trimmed(query.get("ps") or query.get("remarks", "remark")) or trimmed(fragment)
    name = name or beside.get("remarks", "remark")
    notes += map(no_effect, beside.unused())
    uri = Uri(scheme="vmess", user="", host="", port="", query=query, name=name)
    return node_of("vmess", config, uri, notes, _JSON_WORDS)


_JSON_CIPHERS: Final = ("scy", "cipher", "encryption", "method")


def _cipher_key(document: Mapping[str, Any]) -> str:
    """Return the key that has the cipher."""
    return next((key for key in (*_JSON_CIPHERS, "security") if document.get(key)), "scy")


def _part_host_and_path(document: dict[str, Any]) -> None:
    """Split ``host`` at a semicolon: in version 1 it is ``host;path``."""
    host = document.get("host")
    if str(document.get("v", "1")) != "2" and isinstance(host, str) and ";" in host:
        document["host"], _, path = host.partition(";")
        if not document.get("path"):
            document["path"] = path


def _pairs_of_json(document: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the keys of v2rayN's JSON as parameters. Programs write numbers, switches and lists in
    different types.
    """
    is_grpc = str(document.get("net")).lower() in ("grpc", "gun")
    for key, value in document.items():
        name = _JSON_NAMES.get(key, key)
        if key == "security" and str(value).lower() not in ("tls", "reality"):
            name = "cipher"  # V2Ray's word for it
        elif key == "path" and is_grpc:
            name = "serviceName"
        elif key == "type" and is_grpc:
            name = "mode"
        if isinstance(value, list) and all(isinstance(item, str | int) for item in value):
            yield name, ",".join(map(str, value))
        elif isinstance(value, dict | list):
            yield name, write_object({"": value}) if value else ""
        elif isinstance(value, bool):
            yield name, "true" if value else "0"
        else:
            yield name, "" if value is None else str(value)


def _read_common(
    uri: Uri, uuid: str, notes: list[Sentence], *, has_name_of_host: bool = False
) -> dict[str, Any]:
    return {
        "server": uri.host,
        "port": number_or(uri.port),
        "uuid": uuid,
        **read_layers(
            uri.query,
            name_key="servername",
            server=uri.host,
            notes=notes,
            has_name_of_host=has_name_of_host,
        ),
        **_read_packets(uri.query),
        **read_udp(uri.query),
    }


def _read_packets(query: Parameters) -> dict[str, str]:
    word = query.get("packetEncoding").lower()
    if word and word not in _PACKETS:
        query.leave("packetEncoding")
    return {"packet-encoding": _PACKETS[word]} if word in _PACKETS else {}


def _write_packets(fields: Mapping[str, Any]) -> dict[str, str]:
    word = fields.get("packet-encoding")
    return {"packetEncoding": _PACKETS_WRITTEN.get(word, word)} if word else {}


def _cipher(word: str, key: str, notes: list[Sentence]) -> str:
    """Return a cipher of VMess. An unknown one becomes ``auto``, as in other programs."""
    try:
        return str(VMESS_CIPHERS.check(word.strip()))
    except ValueError:
        notes.append(say("taken-as", key=key, word="auto"))
        return "auto"


def _read_plugin(query: Parameters) -> None:
    """Read Shadowrocket's plugin for a WebSocket. Raises Unreadable for other plugins."""
    text = query.get("plugin")
    if not text:
        return
    plugin, options = plugin_of(text)
    if plugin not in OBFS_NAMES or options.get("obfs") != "websocket":
        raise Unreadable("plugin must be obfs-local with obfs=websocket: the engine has no other")
    query.add("type", "ws")
    query.add("host", options.get("obfs-host", ""))
    query.add("path", options.get("obfs-uri", ""))
