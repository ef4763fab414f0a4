"""Import text of nodes: rows of each type, share links, and configurations of other programs."""

from __future__ import annotations

from collections.abc import Iterator

from egressd.formats.node_draft import draft_of
from egressd.formats.node_names import Names
from egressd.formats.node_text import NODE_IMPORT_TYPES, nodes_in
from egressd.formats.rows import Accepted, Unreadable, bounded, check_lines
from egressd.model.drafts import BadRow, NodeDraft
from egressd.model.faults import fault
from egressd.model.wording import say

__all__ = ["NODE_IMPORT_TYPES", "parse_nodes"]


def parse_nodes(
    type: str,  # noqa: A002 (the API's word)
    text: str,
    *,
    group: str = "",
    names: Iterator[str] | Names | None = None,
) -> Iterator[Accepted[NodeDraft] | BadRow]:
    """Return the nodes of `text`, of one of `NODE_IMPORT_TYPES`, each checked on its own.

    Share links may stand in place of a row of any type. Each accepted node takes its name from
    `names` when given. Otherwise it keeps its own name, which is changed where it cannot be a name
    or is an earlier node's (the notes report this); a missing one becomes ``server:port``. All
    nodes get `group`. The names in use outside of the text are not checked. Raises Invalid for too
    many rows or lines.
    """
    check_lines(text)
    return bounded(_parsed(type, text, group, names))


def _parsed(
    import_type: str, text: str, group: str, names: Iterator[str] | Names | None
) -> Iterator[Accepted[NodeDraft] | BadRow]:
    naming = Names() if names is None else names
    for found in nodes_in(import_type, text):
        try:
            if isinstance(found.node, Unreadable):
                raise found.node
            draft, notes = draft_of(found.node, group, naming)
        except Unreadable as why:
            faults = why.faults
            if found.inner:
                faults = (fault("", "of-inner-row", line=found.inner, note=why.sentence),)
            yield BadRow(found.line, faults)
        else:
            if found.inner:
                notes = tuple(say("of-inner-row", line=found.inner, note=note) for note in notes)
            yield Accepted(found.line, draft, notes)
