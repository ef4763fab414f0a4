"""WireGuard's own configuration files (wg-quick(8)): ``[Interface]`` and one ``[Peer]`` are a node.

A text may hold several, one below the other.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from egressd.formats.fields import fold, list_from_text
from egressd.formats.node_draft import ParsedNode, no_effect
from egressd.formats.rows import Row, Unreadable, trimmed
from egressd.formats.share_links.uri import number_or

_BEGIN: Final = re.compile(r"\[interface\]\Z", re.IGNORECASE)
_SECTION: Final = re.compile(r"\[([A-Za-z ]{1,32})\]\Z")
_ENDPOINT: Final = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([^\s:\[\]]+)):([0-9]{1,5})\Z")
_NAME: Final = re.compile(r"[#;]\s*name\s*[=:]\s*(.+)\Z", re.IGNORECASE)
_FIELDS: Final = {
    "interface": {
        "privatekey": "private-key",
        "address": "ip",
        "mtu": "mtu",
        "reserved": "reserved",
    },
    "peer": {
        "publickey": "public-key",
        "presharedkey": "pre-shared-key",
        "allowedips": "allowed-ips",
        "endpoint": "server",
        "persistentkeepalive": "persistent-keepalive",
        "reserved": "reserved",
    },
}
"""Section -> a key of it, folded -> Clash's field."""
_WORDS: Final = {
    "private-key": "PrivateKey",
    "ip": "Address",
    "mtu": "MTU",
    "public-key": "PublicKey",
    "pre-shared-key": "PresharedKey",
    "allowed-ips": "AllowedIPs",
    "server": "Endpoint",
    "port": "Endpoint",
    "persistent-keepalive": "PersistentKeepalive",
}
_AMNEZIA: Final = re.compile(r"(?:jc|jmin|jmax|[sh][1-4]|i[1-5])\Z")
"""Folded keys of AmneziaWG, which change the bytes that are sent."""
_NUMBERS: Final = ("mtu", "persistent-keepalive")


class Tunnel(msgspec.Struct, frozen=True):
    """A node of a text, or the reason for which there is none, with its line."""

    line: int
    node: ParsedNode | Unreadable


def begins(text: str) -> bool:
    """True if a text begins like such a file. Comments may stand before it."""
    first = next((row for row in _lines(text) if not row.text.startswith(("#", ";"))), None)
    return first is not None and _BEGIN.match(first.text) is not None


def tunnels_in(text: str) -> Iterator[Tunnel]:
    """Yield the nodes of such files. A comment ``# Name = …`` before one names its node."""
    name, file = "", _File()
    for row in _lines(text):
        if found := _NAME.match(row.text):
            name = found[1].strip()
        elif _BEGIN.match(row.text):
            if file.line:
                yield file.tunnel()
            name, file = "", _File(row.line, name)
        if not row.text.startswith(("#", ";")):
            file.lines.append(row.text)
    yield file.tunnel()


def _lines(text: str) -> Iterator[Row]:
    for number, line in enumerate(text.split("\n"), start=1):
        if text_of_line := trimmed(line):
            yield Row(number, text_of_line)


class _File:
    """The lines of one file without its comments, and the line it begins at."""

    def __init__(self, line: int = 0, name: str = "") -> None:
        self.line = line
        self.name = name
        self.lines: list[str] = []

    def tunnel(self) -> Tunnel:
        try:
            return Tunnel(self.line, _node(self.name, self.lines))
        except Unreadable as why:
            return Tunnel(self.line, why)


def _node(name: str, lines: list[str]) -> ParsedNode:
    """Return the node of a file. Raises Unreadable."""
    config: dict[str, Any] = {}
    notes = []
    section, peers = "", 0
    for text in lines:
        if found := _SECTION.match(text):
            section = found[1].lower()
            peers += section == "peer"
            if peers > 1:
                raise Unreadable("the file must have one [Peer]: a node has one server")
            continue
        key, equals, value = text.partition("=")
        key, value = key.strip(), re.sub(r"\s+[#;].*", "", value).strip()
        if not equals:
            raise Unreadable("each line of the file must be KEY = VALUE, [Interface] or [Peer]")
        if _AMNEZIA.match(fold(key)) and value not in ("", "0"):
            raise Unreadable(f"{key} must not be given: the engine has no AmneziaWG")
        field = _FIELDS.get(section, {}).get(fold(key))
        if field is None:
            notes.append(no_effect(key))
        elif field == "ip":
            addresses = list_from_text(value)
            inner = [each for each in addresses if ":" not in each][:1]
            config.setdefault("ip", inner[0] if inner else value)
            notes += [no_effect(f"{key} {each}") for each in addresses if each not in inner]
        elif field == "server":
            found = _ENDPOINT.match(value)
            if found is None:
                raise Unreadable(f"{key} must be HOST:PORT")
            config |= {"server": found[1] or found[2], "port": number_or(found[3])}
        elif field == "allowed-ips":
            config["allowed-ips"] = [*config.get("allowed-ips", []), *list_from_text(value)]
        else:
            config[field] = number_or(value) if field in _NUMBERS else value
    return ParsedNode("wireguard", config, name, tuple(notes), _WORDS)
