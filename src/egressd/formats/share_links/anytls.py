"""``anytls://`` links (https://github.com/anytls/anytls-go/blob/main/docs/uri_scheme.md)."""

from __future__ import annotations

from typing import Any

from egressd.formats.config_json import NodeConfig
from egressd.formats.node_draft import ParsedNode
from egressd.formats.share_links.layers import (
    needs_plain_tcp,
    read_security,
    read_tls,
    read_udp,
    write_tls,
    write_udp,
)
from egressd.formats.share_links.result import node_of
from egressd.formats.share_links.uri import decoded, encoded, link_to, number_or, split
from egressd.model.wording import Sentence


def read_anytls(link: str) -> ParsedNode:
    """Read ``anytls://password@host:port/?sni=…``, whose port is 443 when there is none.

    Raises Unreadable.
    """
    uri = split(link)
    notes: list[Sentence] = []
    security = read_security(uri.query, notes)
    needs_plain_tcp(uri.query)
    config: dict[str, Any] = {
        "server": uri.host,
        "port": number_or(uri.port, 443),
        "password": decoded(uri.user),
        **read_tls(uri.query, name_key="sni", security=security),
        **read_udp(uri.query),
    }
    return node_of("anytls", config, uri, notes)


def write_anytls(config: NodeConfig, name: str) -> str:
    """Return the node as an ``anytls://`` link."""
    fields = config.fields
    query = write_tls(fields, insecure="insecure") | write_udp(fields)
    user = encoded(fields["password"])
    return link_to("anytls", user, fields, query, name)
