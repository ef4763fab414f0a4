"""Nodes, lines and proxy services without their secrets, for callers that may only read."""

from __future__ import annotations

import msgspec

from egressd.formats.masking import masked_config, masked_text
from egressd.model.nouns import Line, Node, ProxyService


def masked_node(node: Node) -> Node:
    """Return a node without its credentials."""
    return msgspec.structs.replace(
        node,
        config_json=masked_config(node.config_json),
        change_ip_url=masked_text(node.change_ip_url),
    )


def masked_line(line: Line) -> Line:
    """Return a line without its password and secret."""
    return msgspec.structs.replace(
        line, password=masked_text(line.password), secret=masked_text(line.secret)
    )


def masked_service(service: ProxyService) -> ProxyService:
    """Return a proxy service without its password."""
    return msgspec.structs.replace(service, password=masked_text(service.password))
