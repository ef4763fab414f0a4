"""``socks5://``, ``socks://``, ``http://`` and ``https://`` links."""

from __future__ import annotations

import re
from typing import Any, Final

from egressd.formats.config_json import NodeConfig
from egressd.formats.node_draft import ParsedNode
from egressd.formats.seller_rows import seller_row
from egressd.formats.share_links.layers import (
    needs_plain_tcp,
    read_security,
    read_tls,
    read_udp,
    write_tls,
    write_udp,
)
from egressd.formats.share_links.result import node_of
from egressd.formats.share_links.uri import (
    Uri,
    decoded,
    encoded,
    link_to,
    number_or,
    split,
    user_and_password,
)
from egressd.model.wording import Sentence

_SELLERS: Final = re.compile(r"([A-Za-z0-9]+://)([^/?#]+)(/?(?:[?#].*)?)\Z", re.DOTALL)


def read_socks(link: str) -> ParsedNode:
    """Read ``socks5://user:password@host:port``. Some programs write the user part, or all, in
    base64.

    Sellers write ``socks5://host:port:user:password``. Raises Unreadable.
    """
    uri = split(_usual(link))
    notes: list[Sentence] = []
    config: dict[str, Any] = {"server": uri.host, "port": number_or(uri.port, 1080)}
    config |= _credentials(uri)
    needs_plain_tcp(uri.query)
    if read_security(uri.query, notes):
        config["tls"] = True  # the field's check refuses it
    return node_of("socks5", config | read_udp(uri.query), uri, notes)


def read_http(link: str) -> ParsedNode:
    """Read ``http://user:password@host:port``, or ``https://`` for a proxy reached over TLS.

    The user part, or all, may be in base64. Sellers write it as in `read_socks`. Raises Unreadable.
    """
    uri = split(_usual(link))
    notes: list[Sentence] = []
    needs_plain_tcp(uri.query)
    security = read_security(uri.query, notes) or ("tls" if uri.scheme == "https" else "")
    config: dict[str, Any] = {
        "server": uri.host,
        "port": number_or(uri.port, 443 if security else 80),
        **_credentials(uri),
    }
    if security:
        config |= {"tls": True, **read_tls(uri.query, name_key="sni", security=security)}
    return node_of("http", config | read_udp(uri.query), uri, notes)


def write_socks5(config: NodeConfig, name: str) -> str:
    """Return the node as a ``socks5://`` link."""
    fields = config.fields
    return link_to("socks5", _user(fields), fields, write_udp(fields), name)


def write_http(config: NodeConfig, name: str) -> str:
    """Return the node as an ``http://`` or ``https://`` link."""
    fields = config.fields
    has_tls = fields.get("tls", False)
    query = write_tls(fields) if has_tls else {}
    scheme = "https" if has_tls else "http"
    return link_to(scheme, _user(fields), fields, query, name)


def _usual(link: str) -> str:
    """Return a link in the usual form. The given one may have a seller's row behind its scheme."""
    match = _SELLERS.match(link)
    row = seller_row(decoded(match[2])) if match and "@" not in match[2] else None
    if match is None or row is None or not row.username:
        return link
    host = f"[{row.host}]" if ":" in row.host else row.host
    user = f"{encoded(row.username)}:{encoded(row.password)}"
    return f"{match[1]}{user}@{host}:{row.port}{match[3]}"


def _credentials(uri: Uri) -> dict[str, str]:
    username, password = user_and_password(uri.user, may_be_base64=True)
    given = {"username": username, "password": password}
    return {key: value for key, value in given.items() if value}


def _user(fields: dict[str, Any]) -> str:
    if "username" not in fields:
        return ""
    return f"{encoded(fields['username'])}:{encoded(fields.get('password', ''))}"
