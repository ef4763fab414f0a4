"""What a link gives: a node, and what of the link has no effect."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from egressd.formats.node_draft import ParsedNode, no_effect
from egressd.formats.share_links.layers import PARAMETER_OF
from egressd.formats.share_links.uri import Uri


def node_of(
    protocol: str,
    config: dict[str, Any],
    uri: Uri,
    notes: Sequence[str] = (),
    words: Mapping[str, str] = PARAMETER_OF,
) -> ParsedNode:
    """The node of a link that was read to its end: what was not used of it is told, in `words`
    (see `ParsedNode`).

    Raises Unreadable for a parameter that would change what is sent or trusted.
    """
    unused = [no_effect(name) for name in uri.query.unused()]
    return ParsedNode(protocol, config, uri.name, (*uri.notes, *notes, *unused), words)
