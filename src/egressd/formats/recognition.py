"""The form of a text to import, by the text itself: the type of rows that reads most of it."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Final, Literal, TypeAlias

import msgspec

from egressd.formats import wireguard_conf
from egressd.formats.clash_document import document_items
from egressd.formats.json_items import JsonItems
from egressd.formats.lines import parse_lines
from egressd.formats.node_text import NODE_IMPORT_TYPES, nodes_in
from egressd.formats.nodes import parse_nodes
from egressd.formats.rows import Accepted, rows
from egressd.formats.seller_rows import seller_rows
from egressd.formats.share_links.several import is_row_of_links

NodeForm: TypeAlias = Literal[
    "", "links", "base64", "clash", "singbox", "json", "wireguard", "list", "rows", "entries"
]
"""The form of a text of nodes. ``list``: rows of host, port and credentials as sellers write them;
``rows``: those of the type; empty: nothing in it can be read."""

_LOOKED_AT: Final = 200
"""Rows by which a type is chosen."""
_BEGINNING: Final = 64 * 1024
"""Characters by which the form of a document is recognised."""
_PREFERRED: Final = ("others", "ss", "vlessvmess", "socks5")
"""The types by how much they demand of a row: a row of ``ss`` is one of ``socks5``, too."""
_SING_BOX: Final = ('"outbounds"', '"server_port"', '"tag"')


class RecognisedNodes(msgspec.Struct, frozen=True):
    """The import type that reads most of a text, and the form of the text."""

    type: str
    form: NodeForm


def recognise_nodes(text: str) -> RecognisedNodes:
    """Return the type and the form of a text of nodes; by its first rows. Raises Invalid for too
    many lines, as the import does.
    """
    read = {each: _readable(parse_nodes(each, text)) for each in NODE_IMPORT_TYPES}
    best = max(read.values())
    if not best:
        return RecognisedNodes(_like(text), "")
    chosen = next(each for each in _PREFERRED if read[each] == best)
    return RecognisedNodes(chosen, _form(chosen, text))


def recognise_lines(text: str) -> str:
    """Return the type of VPN lines that reads more rows of a text, by their names if both do;
    ``l2tp`` without any.
    """
    begin = "\n".join(row.text for row in islice(rows(text), _LOOKED_AT))
    named = {each: begin.count(f"{each}_") for each in ("l2tp", "pptp")}
    if named["l2tp"] != named["pptp"]:
        return max(named, key=lambda each: named[each])
    read = {each: _readable(parse_lines(each, begin, needs_name=False)) for each in named}
    return "pptp" if read["pptp"] > read["l2tp"] else "l2tp"


def _readable(found: Iterator[object]) -> int:
    return sum(isinstance(row, Accepted) for row in islice(found, _LOOKED_AT))


def _like(text: str) -> str:
    """Return the type whose reasons help most with a text of which nothing can be read."""
    first = next(rows(text), None)
    if first is None or is_row_of_links(first.text) or first.text[0] in "{[-":
        return "others"
    if "|" in first.text:
        return "vlessvmess"
    return "socks5" if "," in first.text else "others"


def _form(import_type: str, text: str) -> NodeForm:
    found = next(nodes_in(import_type, text))
    if found.inner:
        return "base64"
    if wireguard_conf.begins(text):
        return "wireguard"
    if import_type != "others":
        return "rows"
    begin = text[:_BEGINNING]
    if JsonItems(begin, 0).is_there():
        if any(key in begin for key in _SING_BOX):
            return "singbox"
        return "clash" if '"proxies"' in begin else "json"
    if document_items(begin) is not None:
        return "clash"
    first = next(rows(text)).text
    if is_row_of_links(first):
        return "links"
    return "list" if seller_rows(first) else "entries"
