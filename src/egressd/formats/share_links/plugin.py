"""SIP003 plugins in links: ``name;option=value;…`` (https://shadowsocks.org/doc/sip003.html)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from egressd.formats.clash_keys import plugin_field
from egressd.formats.fields import list_from_text
from egressd.formats.rows import Unreadable
from egressd.formats.share_links.uri import number_or

OBFS_NAMES: Final = ("obfs-local", "simple-obfs", "obfs")
"""The names that programs give to the plugin of simple-obfs."""

_OPTIONS_MAX: Final = 64
_OPTION: Final = re.compile(
    # A backslash at the very end stands for itself. Otherwise no start of a match would fit there.
    r"((?:[^\\;=]|\\(?:.|\Z))*)(?:=((?:[^\\;]|\\(?:.|\Z))*))?(?:;|\Z)",
    re.DOTALL,
)


def plugin_of(text: str) -> tuple[str, dict[str, str]]:
    """Return a plugin's name and options. Backslashes escape. An option without a value is empty.

    Raises Unreadable for too many.
    """
    pairs: list[tuple[str, str]] = []
    for match in _OPTION.finditer(text):
        if len(pairs) > _OPTIONS_MAX:
            raise Unreadable(f"plugin must not have over {_OPTIONS_MAX} options")
        if match[1]:
            pairs.append((_unescaped(match[1]), _unescaped(match[2] or "")))
    return (pairs[0][0], dict(pairs[1:])) if pairs else (text, {})


def plugin_fields(plugin: str, given: Mapping[str, str]) -> dict[str, Any]:
    """Return a plugin and its options as Clash's fields. A switch without a value is on."""
    if plugin in OBFS_NAMES:
        plugin = "obfs"
    if plugin == "shadowtls":
        plugin = "shadow-tls"
    options: dict[str, Any] = {"mode": "websocket"} if plugin == "v2ray-plugin" else {}
    for option, value in given.items():
        field = plugin_field(option)
        if field in _SWITCHES:
            options[field] = value.lower() not in _OFF
        elif field in _TEXTS:
            options |= {field: value} if value else {}
        elif field == "version":
            options[field] = number_or(value)
        elif field == "alpn":
            options[field] = list_from_text(value)
        else:
            # The entry's table refuses an option that it does not know, or a note reports it.
            options[field] = value or True
    return {"plugin": plugin, "plugin-opts": options}


_SWITCHES: Final = ("tls", "mux", "skip-cert-verify")
_TEXTS: Final = ("mode", "host", "path", "sni", "name-cert-verify", "password")
_OFF: Final = ("0", "false", "no", "off")


def plugin_text(name: str, options: dict[str, str]) -> str:
    """Return a plugin in a link's notation. Options without a value are left out."""
    escaped = {key: re.sub(r"([\\;=])", r"\\\1", value) for key, value in options.items()}
    return name + "".join(f";{key}={value}" for key, value in escaped.items() if value)


def _unescaped(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text, flags=re.DOTALL)
