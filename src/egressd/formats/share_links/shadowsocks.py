"""``ss://`` links: SIP002 (https://shadowsocks.org/doc/sip002.html) and the older form."""

from __future__ import annotations

from typing import Any, Final

from egressd.formats.config_json import NodeConfig
from egressd.formats.entries.shadowsocks import SS_2022_KEY_BYTES
from egressd.formats.json_text import read_object
from egressd.formats.node_draft import ParsedNode
from egressd.formats.rows import Unreadable
from egressd.formats.scalars import is_off
from egressd.formats.share_links.layers import (
    needs_no_reality,
    needs_plain_tcp,
    read_udp,
    write_udp,
)
from egressd.formats.share_links.parameters import Parameters
from egressd.formats.share_links.plugin import (
    OBFS_NAMES,
    plugin_fields,
    plugin_of,
    plugin_text,
)
from egressd.formats.share_links.result import node_of
from egressd.formats.share_links.uri import (
    encoded,
    from_base64,
    link_to,
    number_or,
    split,
    to_base64,
    user_and_password,
)
from egressd.model.errors import Invalid

_PLUGIN_NAMES: Final = (*OBFS_NAMES, "v2ray-plugin", "shadow-tls", "shadowtls")
_BESIDE: Final = (
    *("obfs", "obfs-host", "obfs-uri"),
    *("mode", "host", "path", "tls", "mux", "skip-cert-verify", "allowInsecure", "sni"),
)
"""Options of a plugin that may stand beside it, as parameters of their own."""


def read_ss(link: str) -> ParsedNode:
    """Read ``ss://user@host:port/?plugin=…``, whose user part is ``method:password`` or base64 of
    it.

    In the older form everything between ``ss://`` and ``?`` or ``#`` is base64. Raises Unreadable.
    """
    uri = split(link, needs_port=True)
    query = uri.query
    cipher, password = user_and_password(uri.user, may_be_base64=True)
    if not cipher:
        raise Unreadable("an ss link must be ss://BASE64(method:password)@host:port#name")
    config: dict[str, Any] = {
        "server": uri.host,
        "port": number_or(uri.port),
        "cipher": cipher,
        "password": password,
        **read_udp(query),
        **_read_plugin(query),
    }
    if fingerprint := query.get("fp"):
        config["client-fingerprint"] = fingerprint
    needs_plain_tcp(query)
    needs_no_reality(query)
    for name in ("security", "tls"):
        if query.get(name).lower() not in ("", "none", "0", "false"):
            raise Unreadable(f"{name} must be none: the engine has no TLS beneath Shadowsocks")
    version = query.get("uot", "udp-over-tcp").lower()
    if version in ("1", "2", "true"):
        config |= {"udp-over-tcp": True, "udp-over-tcp-version": 2 if version == "2" else 1}
    return node_of("ss", config, uri)


def write_ss(config: NodeConfig, name: str) -> str:
    """Return the node as a SIP002 link."""
    fields = config.fields
    cipher, password = fields["cipher"], fields["password"]
    if cipher in SS_2022_KEY_BYTES:  # SIP022: not in base64 again
        user = f"{cipher}:{encoded(password)}"
    else:
        user = to_base64(f"{cipher}:{password}", url_safe=True)
    query = {"plugin": _write_plugin(fields), **write_udp(fields)}
    query["fp"] = fields.get("client-fingerprint", "")
    if fields.get("udp-over-tcp", False):
        query["uot"] = str(fields.get("udp-over-tcp-version", 1))
    return link_to("ss", user, fields, query, name)


def _read_plugin(query: Parameters) -> dict[str, Any]:
    """Return the plugin of a link as Clash's fields. Raises Unreadable."""
    text = query.get("plugin")
    if document := query.get("v2ray-plugin"):
        return plugin_fields("v2ray-plugin", _read_json(document, "v2ray-plugin"))
    if document := query.get("shadow-tls"):
        return plugin_fields("shadow-tls", _read_json(document, "shadow-tls"))
    if is_off(text):
        return _read_obfs(query)
    name, given = plugin_of(text)
    if not given:
        given = {key: query.get(key) for key in _BESIDE if query.is_given(key)}
    if name not in _PLUGIN_NAMES:
        return {"plugin": name}  # the field's check refuses it by name
    return plugin_fields(name, given)


def _read_obfs(query: Parameters) -> dict[str, Any]:
    """Return the simple-obfs plugin of a link that does not name it, as in Shadowrocket and old
    Clash.
    """
    mode = query.get("obfs").lower()
    if mode in ("", "none", "plain"):
        return {}
    if mode not in ("http", "tls"):
        raise Unreadable("obfs must be http or tls: the engine has no other beneath Shadowsocks")
    given = {"mode": mode, "host": query.get("obfs-host", "obfsParam", "host")}
    return plugin_fields("obfs", given | {"path": query.get("obfs-uri", "path")})


def _read_json(text: str, name: str) -> dict[str, str]:
    """Return a plugin's options from Shadowrocket's JSON in base64. Raises Unreadable."""
    document = from_base64(text.replace(" ", "+"))
    try:
        given = read_object(document or "", name)
    except Invalid as invalid:
        raise Unreadable(str(invalid)) from None
    return {
        key: str(value).lower() if isinstance(value, bool) else str(value)
        for key, value in given.items()
        if value is not None and value != ""
    }


def _write_plugin(fields: dict[str, Any]) -> str:
    plugin, given = fields.get("plugin"), fields.get("plugin-opts", {})
    if plugin == "obfs":
        options = {"obfs": given["mode"], "obfs-host": given.get("host", "")}
        return plugin_text("obfs-local", options)
    if plugin == "shadow-tls":
        options = {key: str(given.get(key, "")) for key in ("host", "password", "version")}
        options["alpn"] = ",".join(given.get("alpn", ()))
        return plugin_text("shadow-tls", options)
    if plugin == "v2ray-plugin":
        options = {"mode": given.get("mode", ""), "host": given.get("host", "")}
        options["path"] = given.get("path", "")
        if "mux" in given:
            options["mux"] = "1" if given["mux"] else "0"
        text = plugin_text("v2ray-plugin", options)
        return text + (";tls" if given.get("tls", False) else "")
    return ""
