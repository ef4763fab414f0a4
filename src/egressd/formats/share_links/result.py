"""The result of a link: a node, and notes on the parts of the link that have no effect."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from egressd.formats.node_draft import ParsedNode, no_effect
from egressd.formats.share_links.layers import PARAMETER_OF
from egressd.formats.share_links.uri import Uri
from egressd.model.wording import Sentence


def node_of(
    protocol: str,
    config: dict[str, Any],
    uri: Uri,
    notes: Sequence[Sentence] = (),
    words: Mapping[str, str] = PARAMETER_OF,
) -> ParsedNode:
    """Return the node of a link that was read completely, with notes on its unused parameters.
    `words` is that of `ParsedNode`.

    Raises Unreadable for a parameter that would change the bytes that are sent or the peers that
    are trusted.
    """
    unused = [no_effect(name) for name in uri.query.unused()]
    return ParsedNode(protocol, config, uri.name, (*uri.notes, *notes, *unused), words)
