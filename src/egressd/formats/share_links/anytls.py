"""``anytls://`` links (https://github.com/anytls/anytls-go/blob/main/docs/uri_scheme.md)."""

from __future__ import annotations

from typing import Any

from egressd.formats.config_json import NodeConfig
from egressd.formats.node_draft import ParsedNode
from egressd.formats.share_links.layers import read_tls, read_udp, write_tls, write_udp
from egressd.formats.share_links.uri import decoded, encoded, link_to, port_or, split


def read_anytls(link: str) -> ParsedNode:
    """``anytls://password@host:port/?sni=…``; the port is 443 when there is none."""
    uri = split(link)
    config: dict[str, Any] = {
        "server": uri.host,
        "port": port_or(uri.port, 443),
        "password": decoded(uri.user),
        **read_tls(uri.query, name_key="sni"),
        **read_udp(uri.query),
    }
    return ParsedNode("anytls", config, uri.name)


def write_anytls(config: NodeConfig, name: str) -> str:
    """The node as an ``anytls://`` link."""
    fields = config.fields
    query = write_tls(fields, insecure="insecure") | write_udp(fields)
    user = encoded(fields["password"])
    return link_to("anytls", user, fields, query, name)
