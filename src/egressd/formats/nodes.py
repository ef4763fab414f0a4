"""Import text of nodes: rows of each type, share links, and pasted Clash lists."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from egressd.formats.clash_text import entries_of_document
from egressd.formats.node_draft import ParsedNode, draft_of
from egressd.formats.node_rows import (
    clash_entries,
    socks5_row,
    ss_row,
    vlessvmess_row,
)
from egressd.formats.rows import Accepted, BadRow, Unreadable, bounded, rows
from egressd.formats.share_links import is_link, parse_link
from egressd.model.drafts import NodeDraft

_ROW_READERS: Final[Mapping[str, Callable[[str], ParsedNode]]] = {
    "socks5": socks5_row,
    "ss": ss_row,
    "vlessvmess": vlessvmess_row,
}
NODE_IMPORT_TYPES: Final = (*_ROW_READERS, "others")


def parse_nodes(
    type: str,  # noqa: A002 (the API's word)
    text: str,
    *,
    group: str = "",
    names: Iterator[str] | None = None,
) -> Iterator[Accepted[NodeDraft] | BadRow]:
    """The nodes of `text`, of one of `NODE_IMPORT_TYPES`, each checked on its own.

    A share link of any scheme may stand in place of a row. Each accepted node takes its name
    from `names` when given; a missing name becomes ``server:port`` otherwise. `group` is
    given to all. Whether names are in use, in the text itself too, is not looked at. Raises Invalid
    for too many.
    """
    return bounded(_parsed(type, text, group, names))


def _parsed(
    import_type: str, text: str, group: str, names: Iterator[str] | None
) -> Iterator[Accepted[NodeDraft] | BadRow]:
    document = entries_of_document(text) if import_type == "others" else None
    for row in rows(text) if document is None else document:
        try:
            parsed = _nodes_of(import_type, row.text)
        except Unreadable as why:
            yield BadRow(row.line, str(why))
            continue
        for node in parsed:
            try:
                yield Accepted(row.line, draft_of(node, group, names))
            except Unreadable as why:
                yield BadRow(row.line, str(why))


def _nodes_of(import_type: str, row: str) -> list[ParsedNode]:
    """The nodes of a row: one, but for a Clash list on one line. Raises Unreadable."""
    if is_link(row):
        return [parse_link(row)]
    if import_type == "others":
        return clash_entries(row)
    return [_ROW_READERS[import_type](row)]
