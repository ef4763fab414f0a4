"""``ss://`` links: SIP002 (https://shadowsocks.org/doc/sip002.html) and the older form."""

from __future__ import annotations

import re
from typing import Any

from egressd.formats.config_json import NodeConfig
from egressd.formats.entries.shadowsocks import SS_2022_KEY_BYTES
from egressd.formats.node_draft import ParsedNode
from egressd.formats.rows import Unreadable
from egressd.formats.share_links.layers import is_true, read_udp, write_udp
from egressd.formats.share_links.uri import (
    decoded,
    encoded,
    from_base64,
    link_to,
    port_or,
    split,
    to_base64,
    user_and_password,
)

_OPTION = re.compile(
    # A backslash at the very end stands for itself: without that no place to begin would match.
    r"((?:[^\\;=]|\\(?:.|\Z))*)(?:=((?:[^\\;]|\\(?:.|\Z))*))?(?:;|\Z)",
    re.DOTALL,
)


def read_ss(link: str) -> ParsedNode:
    """``ss://user@host:port/?plugin=…``, the user part being ``method:password`` or base64 of it.

    In the older form everything between ``ss://`` and ``#`` is base64.
    """
    body, _, fragment = link.partition("://")[2].partition("#")
    if "@" not in body:
        whole = from_base64(decoded(body.rstrip("/")))
        if whole is None or "@" not in whole:
            raise Unreadable("an ss link must be ss://BASE64(method:password)@host:port#name")
        secret, _, address = whole.rpartition("@")
        uri = split(f"ss://{address}#{fragment}")
        cipher, _, password = secret.partition(":")
    else:
        uri = split(link)
        cipher, password = user_and_password(uri.user, may_be_base64=True)
    config: dict[str, Any] = {
        "server": uri.host,
        "port": port_or(uri.port),
        "cipher": cipher,
        "password": password,
        **read_udp(uri.query),
        **_read_plugin(uri.text("plugin")),
    }
    version = uri.text("uot", "udp-over-tcp")
    if is_true(version) or version == "2":
        config |= {"udp-over-tcp": True, "udp-over-tcp-version": 2 if version == "2" else 1}
    return ParsedNode("ss", config, uri.name)


def write_ss(config: NodeConfig, name: str) -> str:
    """The node as a SIP002 link."""
    fields = config.fields
    cipher, password = fields["cipher"], fields["password"]
    if cipher in SS_2022_KEY_BYTES:  # SIP022: not in base64 again
        user = f"{cipher}:{encoded(password)}"
    else:
        user = to_base64(f"{cipher}:{password}", url_safe=True)
    query = {"plugin": _write_plugin(fields), **write_udp(fields)}
    if fields.get("udp-over-tcp", False):
        query["uot"] = str(fields.get("udp-over-tcp-version", 1))
    return link_to("ss", user, fields, query, name)


def _read_plugin(text: str) -> dict[str, Any]:
    """SIP003's ``name;option=value;…`` with backslash escapes, as Clash's fields."""
    if not text:
        return {}
    pairs = [
        (_unescaped(match[1]), _unescaped(match[2] or ""))
        for match in _OPTION.finditer(text)
        if match[1]
    ]
    given = dict(pairs[1:])
    name = pairs[0][0] if pairs else text
    if name in ("obfs-local", "simple-obfs", "obfs"):
        options: dict[str, Any] = {
            "mode": given.pop("obfs", ""),
            "host": given.pop("obfs-host", ""),
        }
        options = {key: value for key, value in options.items() if value}
        return {"plugin": "obfs", "plugin-opts": options | given}
    if name == "v2ray-plugin":
        options = {"mode": given.pop("mode", "websocket")}
        if "tls" in given:
            options["tls"] = given.pop("tls") in ("", "true", "1")
        if "mux" in given:
            options["mux"] = given.pop("mux") != "0"
        return {"plugin": name, "plugin-opts": options | given}
    return {"plugin": name}


def _write_plugin(fields: dict[str, Any]) -> str:
    plugin, given = fields.get("plugin"), fields.get("plugin-opts", {})
    if plugin == "obfs":
        options = {"obfs": given["mode"], "obfs-host": given.get("host", "")}
        return "obfs-local" + _options(options)
    if plugin == "v2ray-plugin":
        options = {"mode": given.get("mode", ""), "host": given.get("host", "")}
        options["path"] = given.get("path", "")
        if "mux" in given:
            options["mux"] = "1" if given["mux"] else "0"
        return "v2ray-plugin" + _options(options) + (";tls" if given.get("tls", False) else "")
    return ""


def _options(options: dict[str, str]) -> str:
    escaped = {key: re.sub(r"([\\;=])", r"\\\1", value) for key, value in options.items()}
    return "".join(f";{key}={value}" for key, value in escaped.items() if value)


def _unescaped(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text, flags=re.DOTALL)
