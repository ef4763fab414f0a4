"""Share links: one line of text a node, the exchange format of proxy programs.

`parse_link` reads ``ss://``, ``vmess://``, ``vless://``, ``trojan://``, ``hysteria://``,
``hysteria2://``, ``hy2://``, ``tuic://``, ``anytls://``, ``ssh://``, ``wireguard://``, ``wg://``,
``socks5://``, ``socks5h://``, ``socks://``, ``http://`` and ``https://``; `render_link` writes
them. Each family of schemes has one module; `uri` and `layers` are shared.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from egressd.formats.config_json import SETTINGS_KEYS, NodeConfig, read_config
from egressd.formats.json_text import write_object
from egressd.formats.node_draft import ParsedNode
from egressd.formats.rows import ROW_MAX, Unreadable
from egressd.formats.share_links import anytls, plain, quic, shadowsocks, ssh, v2ray, wireguard
from egressd.model.errors import Invalid
from egressd.model.names import has_control_characters

_READERS: Final[Mapping[str, Callable[[str], ParsedNode]]] = {
    "socks5": plain.read_socks,
    "socks5h": plain.read_socks,
    "socks": plain.read_socks,
    "http": plain.read_http,
    "https": plain.read_http,
    "ss": shadowsocks.read_ss,
    "vmess": v2ray.read_vmess,
    "vless": v2ray.read_vless,
    "trojan": v2ray.read_trojan,
    "hysteria": quic.read_hysteria,
    "hysteria2": quic.read_hysteria2,
    "hy2": quic.read_hysteria2,
    "tuic": quic.read_tuic,
    "anytls": anytls.read_anytls,
    "ssh": ssh.read_ssh,
    "wireguard": wireguard.read_wireguard,
    "wg": wireguard.read_wireguard,
}

SCHEMES: Final = tuple(_READERS)
"""The supported schemes, without ``://``."""

_WRITERS: Final[Mapping[str, Callable[[NodeConfig, str], str]]] = {
    "socks5": plain.write_socks5,
    "http": plain.write_http,
    "ss": shadowsocks.write_ss,
    "vmess": v2ray.write_vmess,
    "vless": v2ray.write_vless,
    "trojan": v2ray.write_trojan,
    "hysteria": quic.write_hysteria,
    "hysteria2": quic.write_hysteria2,
    "tuic": quic.write_tuic,
    "anytls": anytls.write_anytls,
    "ssh": ssh.write_ssh,
    "wireguard": wireguard.write_wireguard,
}

_LINK: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]{0,15}://")


class Link(msgspec.Struct, frozen=True):
    """A share link, and the parts of the node's configuration that it cannot express."""

    text: str
    lost: tuple[str, ...] = ()
    """Fields, by path: ``ws-opts.headers``, ``ech-opts``, … and the egress and DNS settings."""

    def __repr__(self) -> str:
        return f"Link(lost={self.lost!r})"


def is_link(text: str) -> bool:
    """True if `text` begins like a link, of any scheme."""
    return _LINK.match(text) is not None


def parse_link(text: str) -> ParsedNode:
    """Return the node that a link stands for, unchecked. Raises Unreadable."""
    if len(text) > ROW_MAX:
        raise Unreadable(f"the link must not be over {ROW_MAX} characters")
    if has_control_characters(text.partition("#")[0]):
        raise Unreadable("the link must not contain control characters")
    reader = _READERS.get(text.partition("://")[0].lower())
    if reader is None:
        raise Unreadable(f"the link must begin with {'://, '.join(SCHEMES)}://")
    return reader(text)


def render_link(name: str, protocol: str, config_json: str) -> Link:
    """Return a node as a share link. Raises Invalid when the configuration is not valid."""
    config = read_config(protocol, config_json)
    text = _WRITERS[protocol](config, name)
    lost = [*_differences(config.fields, _fields_of(text)), *config.unknown]
    settings = msgspec.structs.astuple(config.settings)
    lost += [key for key, value in zip(SETTINGS_KEYS, settings, strict=True) if value]
    return Link(text, tuple(lost))


def _fields_of(link: str) -> dict[str, Any]:
    """Return the fields that a reader of the link finds, or none when it cannot be read."""
    try:
        parsed = parse_link(link)
        return read_config(parsed.protocol, write_object(parsed.config)).fields
    except (Unreadable, Invalid):
        return {}


def _differences(before: Mapping[str, Any], after: Mapping[str, Any], place: str = "") -> list[str]:
    """Return the paths whose values differ, and options that a reader adds to others. A missing
    switch that is off, a missing empty value and an added path that is the root do not count.
    """
    found = []
    for key, value in before.items():
        other = after.get(key)
        if not value or value == other:
            continue
        if isinstance(value, dict):
            inner = other if isinstance(other, dict) else {}
            found += _differences(value, inner, f"{place}{key}.")
        else:
            found.append(place + key)
    added = (key for key in after if place and key not in before and after[key] not in ("", "/"))
    return found + [place + key for key in added]
