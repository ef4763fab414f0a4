"""``socks5://``, ``socks://``, ``http://`` and ``https://`` links."""

from __future__ import annotations

from typing import Any

from egressd.formats.config_json import NodeConfig
from egressd.formats.node_draft import ParsedNode
from egressd.formats.share_links.layers import read_tls, read_udp, write_tls, write_udp
from egressd.formats.share_links.uri import encoded, link_to, port_or, split, user_and_password


def read_socks(link: str) -> ParsedNode:
    """``socks5://user:password@host:port``; some programs write the user part in base64."""
    uri = split(link)
    config: dict[str, Any] = {"server": uri.host, "port": port_or(uri.port, 1080)}
    config |= _credentials(*user_and_password(uri.user, may_be_base64=True))
    return ParsedNode("socks5", config | read_udp(uri.query), uri.name)


def read_http(link: str) -> ParsedNode:
    """``http://user:password@host:port``, or ``https://`` for a proxy reached over TLS."""
    uri = split(link)
    has_tls = uri.scheme == "https"
    config: dict[str, Any] = {"server": uri.host, "port": port_or(uri.port, 443 if has_tls else 80)}
    config |= _credentials(*user_and_password(uri.user))
    if has_tls:
        config |= {"tls": True, **read_tls(uri.query, name_key="sni")}
    return ParsedNode("http", config, uri.name)


def write_socks5(config: NodeConfig, name: str) -> str:
    """The node as a ``socks5://`` link."""
    fields = config.fields
    return link_to("socks5", _user(fields), fields, write_udp(fields), name)


def write_http(config: NodeConfig, name: str) -> str:
    """The node as an ``http://`` or ``https://`` link."""
    fields = config.fields
    has_tls = fields.get("tls", False)
    query = write_tls(fields) if has_tls else {}
    scheme = "https" if has_tls else "http"
    return link_to(scheme, _user(fields), fields, query, name)


def _credentials(username: str, password: str) -> dict[str, str]:
    given = {"username": username, "password": password}
    return {key: value for key, value in given.items() if value}


def _user(fields: dict[str, Any]) -> str:
    if "username" not in fields:
        return ""
    return f"{encoded(fields['username'])}:{encoded(fields.get('password', ''))}"
