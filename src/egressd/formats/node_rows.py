"""Rows of nodes: ``socks5``, ``ss`` and ``vlessvmess``; and Clash entries (``others``)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from egressd.formats.clash_text import Scalar, read_entry_text, to_json
from egressd.formats.entries import PROTOCOLS
from egressd.formats.node_draft import ParsedNode
from egressd.formats.rows import Unreadable, fields, separated
from egressd.formats.share_links.layers import read_layers

_VLESS = ("network", "security", "sni", "path", "host", "flow", "pbk", "sid", "fp", "name")
_VMESS = ("alterId", "cipher", "network", "security", "sni", "path", "host", "name")
_V2RAY_START = ("scheme", "uuid", "server", "port")


def socks5_row(row: str) -> ParsedNode:
    """``IP,Port[,User,Pass[,Name]]``. Raises Unreadable."""
    found = fields(row)
    if len(found) not in (2, 4, 5):
        raise Unreadable("a socks5 node is IP,Port,User,Pass or IP,Port,User,Pass,Name")
    server, port, username, password, name = [*found, "", "", ""][:5]
    config = {"server": server, "port": _number(port)}
    if username or password:
        config |= {"username": username, "password": password}
    return ParsedNode("socks5", config, name)


def ss_row(row: str) -> ParsedNode:
    """``IP,Port,Cipher,Password[,Name]``. Raises Unreadable."""
    found = fields(row)
    if len(found) not in (4, 5):
        raise Unreadable("an ss node is IP,Port,Cipher,Password or IP,Port,Cipher,Password,Name")
    server, port, cipher, password, name = [*found, ""][:5]
    config = {"server": server, "port": _number(port), "cipher": cipher, "password": password}
    return ParsedNode("ss", config, name)


def vlessvmess_row(row: str) -> ParsedNode:
    """A ``|`` separated row; all but the scheme, uuid, server and port may be missing.

    ``vless|uuid|server|port|network|security|sni|path|host|flow|pbk|sid|fp|name`` or
    ``vmess|uuid|server|port|alterId|cipher|network|security|sni|path|host|name``. With gRPC the
    path is the service's name. Raises Unreadable.
    """
    found = separated(row, "|")
    protocol = found[0].lower()
    if protocol not in ("vless", "vmess"):
        raise Unreadable("the row must begin with vless| or vmess|")
    form = (*_V2RAY_START, *(_VLESS if protocol == "vless" else _VMESS))
    if not len(_V2RAY_START) <= len(found) <= len(form):
        raise Unreadable(f"a {protocol} node is {'|'.join((protocol, *form[1:]))}")
    given = {key: value for key, value in zip(form, found, strict=False) if value}
    config: dict[str, Any] = {
        "server": given.get("server", ""),
        "port": _number(given.get("port", "")),
        "uuid": given.get("uuid", ""),
    }
    if "alterId" in given:
        config["alterId"] = _number(given["alterId"])
    config |= {key: given[key] for key in ("cipher", "flow") if key in given}
    path = {"serviceName": given["path"]} if "path" in given else {}
    config |= read_layers(
        {**given, **path, "type": given.get("network", "")}, name_key="servername"
    )
    return ParsedNode(protocol, config, given.get("name", ""))


def clash_entries(text: str) -> list[ParsedNode]:
    """The entries that `text` holds: one, or those of a list. Raises Unreadable."""
    value = read_entry_text(text)
    if value == []:
        raise Unreadable("the list holds no node")
    return [_clash_entry(entry) for entry in (value if isinstance(value, list) else [value])]


def _clash_entry(entry: Any) -> ParsedNode:
    """A node from an entry. What is no mapping becomes one without a type, refused as such."""
    given = entry if isinstance(entry, Mapping) else {}
    protocol = _word(given.get("type"))
    kinds = PROTOCOLS[protocol].table.keys if protocol in PROTOCOLS else {}
    config = {
        key: to_json(value, kinds.get(key))
        for key, value in given.items()
        if key not in ("name", "type")
    }
    return ParsedNode(protocol, config, _word(given.get("name")))


def _word(value: Any) -> str:
    return value.text if isinstance(value, Scalar) else ""


def _number(text: str) -> int | str:
    """`text` as a number; as it is when it is none, so that the field's check says so."""
    return int(text) if text.isdecimal() and text.isascii() and len(text) <= 9 else text
