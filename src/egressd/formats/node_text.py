"""The text of a node import as a whole: its nodes, each with its line.

A text may be rows, share links, a Clash configuration or a piece of it, JSON documents, or base64
of any of these, as in the answers of subscription addresses.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any, Final

import msgspec

from egressd.formats import wireguard_conf
from egressd.formats.clash_document import document_items
from egressd.formats.clash_text import read_entry_text
from egressd.formats.json_items import LISTS, JsonItems
from egressd.formats.node_draft import ParsedNode
from egressd.formats.node_rows import clash_node, node_of_seller, socks5_row, ss_row, vlessvmess_row
from egressd.formats.rows import Row, Unreadable, check_lines, row_of, rows, trimmed
from egressd.formats.scalars import text_of
from egressd.formats.seller_rows import seller_rows
from egressd.formats.share_links import parse_link
from egressd.formats.share_links.several import is_row_of_links, links_of, unbroken
from egressd.formats.share_links.uri import from_base64
from egressd.formats.singbox import NOT_NODES, outbound_node, sip008_node
from egressd.model.names import has_control_characters

_ROW_READERS: Final[Mapping[str, Callable[[str], ParsedNode]]] = {
    "socks5": socks5_row,
    "ss": ss_row,
    "vlessvmess": vlessvmess_row,
}
NODE_IMPORT_TYPES: Final = (*_ROW_READERS, "others")

_BASE64: Final = re.compile(r"[A-Za-z0-9+/_-]{16,}={0,2}\Z")
_PADDING: Final = re.compile(r"(?:%3d){1,2}\Z", re.IGNORECASE)
"""Base64 padding, escaped as in an address."""
_DATA_URL: Final = re.compile(r"data:[^,]{0,64},")
_BASE64_BEGIN: Final = re.compile(
    rf"""["]?(?:{_DATA_URL.pattern})?[A-Za-z0-9+/_-]{{12,}}[A-Za-z0-9+/=_-]{{4}}"""
)
_ENTRY: Final = re.compile(r"(?i:(?:- *)?(?:\{|(?:name|type|server): ))")
_BEHIND_JSON: Final = re.compile(r"[\s,;]*")
_LOOKS_MAX: Final = 8
"""Scans of the whole text, counted in characters, that a search for absent JSON may take."""
_LINE: Final = re.compile(r"[^\n]+")
_RULE: Final = re.compile(r"[-=*_~`+.•·\s]+\Z")
"""A row that only separates others."""


class Found(msgspec.Struct, frozen=True):
    """A node of a text, or the reason for which there is none, with its line.

    ``inner`` is the line within the text that the line encodes, or 0 if it encodes none.
    """

    line: int
    node: ParsedNode | Unreadable
    inner: int = 0


def nodes_in(import_type: str, text: str) -> Iterator[Found]:
    """Yield the nodes of `text`, whose rows are of `import_type` (one of `NODE_IMPORT_TYPES`)."""
    first = next(rows(text), None)
    if first is not None and _BASE64_BEGIN.match(first.text):
        plain = _plain_text("".join(row.text for row in rows(text)))
        # The joined rows of letters and digits may form base64 by chance.
        if plain is not None and _has_nodes(import_type, plain):
            yield from _encoded(import_type, first.line, plain)
            return
    yield from _nodes(import_type, text, may_be_base64=True)


def _encoded(import_type: str, line: int, plain: str) -> Iterator[Found]:
    check_lines(plain)
    for found in _nodes(import_type, plain, may_be_base64=False):
        yield Found(line, found.node, found.line)


def _plain_text(encoded: str) -> str | None:
    """Return the text that base64 (padded or not, of either alphabet) stands for, or None if it
    stands for no text.
    """
    encoded = trimmed(encoded)
    if encoded[:1] == encoded[-1:] == '"':  # a JSON response
        encoded = encoded[1:-1]
    encoded = _PADDING.sub("", _DATA_URL.sub("", encoded))
    plain = from_base64(encoded) if _BASE64.match(encoded) else None
    if plain is None or has_control_characters(plain[:_BEGINNING].translate(_LINE_ENDS)):
        return None
    return plain


def _has_nodes(import_type: str, plain: str) -> bool:
    """True if a text looks as if it had nodes."""
    begin = plain[:_BEGINNING]
    if wireguard_conf.begins(begin):
        return True
    if JsonItems(begin, 0).is_there() or document_items(begin) is not None:
        return True
    return any(_is_node(import_type, row.text) for row in rows(begin))


def _is_node(import_type: str, row: str) -> bool:
    if is_row_of_links(row) or seller_rows(row):
        return True
    if import_type == "others":
        return _ENTRY.match(row) is not None
    with suppress(Unreadable):
        return bool(_ROW_READERS[import_type](row))
    return False


_BEGINNING: Final = 64 * 1024
"""Characters from the start of a text by which its form is recognised."""
_LINE_ENDS: Final = str.maketrans("\r\n\t", "   ")


def _nodes(import_type: str, text: str, *, may_be_base64: bool) -> Iterator[Found]:
    if wireguard_conf.begins(text):
        for tunnel in wireguard_conf.tunnels_in(text):
            yield Found(tunnel.line, tunnel.node)
        return
    if import_type == "others" and not _begins_with_json(text):
        document = document_items(text)
        if document is not None:
            for line, item in document:
                yield from _nodes_of_item(line, item)
            return
    yield from _rows(import_type, text, may_be_base64=may_be_base64)


def _begins_with_json(text: str) -> bool:
    return JsonItems(text, 0).is_there()


def _rows(import_type: str, text: str, *, may_be_base64: bool) -> Iterator[Found]:
    """Yield the nodes of rows: of links, and of JSON that begins in a row and goes on below it."""
    position, number = 0, 1
    patience = _LOOKS_MAX * len(text)
    while (match := _LINE.search(text, position)) is not None:
        number += text.count("\n", position, match.start())
        position = match.end()
        row = row_of(match[0])
        if not row or _RULE.match(row):
            continue
        if row[0] in "{[/" and import_type == "others" and patience >= 0:
            json = JsonItems(text, match.start() + match[0].index(row[0]))
            if json.is_there():
                yield from _nodes_of_json(text, number, match.start(), json)
                position = _BEHIND_JSON.match(text, json.end).end()  # type: ignore[union-attr]
                number += text.count("\n", match.start(), position)
                continue
            patience -= json.looked
        if is_row_of_links(row):
            end = position
            if row.endswith("=") or "=3D" in row:
                row, end = unbroken(text, match.start(), end)
            for link in links_of(row):
                yield Found(number, _link_node(link))
            number += text.count("\n", position, end)
            position = end
        elif may_be_base64 and (plain := _plain_text(row)) is not None:
            yield from _encoded(import_type, number, plain)
        else:
            yield from _nodes_of_row(import_type, number, row)


def _nodes_of_row(import_type: str, number: int, row: str) -> Iterator[Found]:
    try:
        may_be_sellers = import_type == "others" or (import_type == "socks5" and "," not in row)
        if may_be_sellers and (sellers := seller_rows(row)):
            yield from (Found(number, node_of_seller(seller)) for seller in sellers)
        elif import_type != "others":
            yield Found(number, _ROW_READERS[import_type](row))
        else:
            yield from _nodes_of_item(number, read_entry_text(row))
    except Unreadable as why:
        yield Found(number, why)


def _nodes_of_json(text: str, number: int, start: int, items: JsonItems) -> Iterator[Found]:
    is_empty = True
    for place, item in items:
        number += text.count("\n", start, place)
        start = place
        is_empty = False
        yield from _nodes_of_item(number, item)
    if is_empty:
        yield Found(number, Unreadable("the list holds no node"))


def _nodes_of_item(line: int, item: Any) -> Iterator[Found]:
    """Yield the nodes of an item of a document: an entry, a link, or a list of these."""
    if isinstance(item, Row):
        yield from (Found(line, _link_node(link)) for link in links_of(item.text))
    elif isinstance(item, Unreadable):
        yield Found(line, item)
    elif isinstance(item, list):
        if not item:
            yield Found(line, Unreadable("the list holds no node"))
        for inner in item:
            yield from _nodes_of_item(line, inner)
    elif is_row_of_links(text := text_of(item)):
        yield from (Found(line, _link_node(link)) for link in links_of(text))
    elif isinstance(item, dict) and (lists := _lists_of(item)):
        yield from _nodes_of_item(line, lists)
    else:
        try:
            node = _entry_node(item)
        except Unreadable as why:
            yield Found(line, why)
        else:
            if node is not None:
                yield Found(line, node)


def _lists_of(item: Mapping[str, Any]) -> list[Any]:
    """Return the lists of nodes of a document that stands in one item."""
    if "type" in item:
        return []
    return [value for key in LISTS if isinstance(value := item.get(key), list)]


def _entry_node(item: Any) -> ParsedNode | None:
    """Return the node of an entry of Clash, sing-box or SIP008, or None for an entry that is no
    node, such as a group.

    Raises Unreadable.
    """
    if not isinstance(item, dict):
        return clash_node(item)
    kind = text_of(item.get("type"))
    if not kind and "protocol" in item:
        if text_of(item["protocol"]).lower() in _NOT_NODES_OF_XRAY:
            return None
        raise Unreadable("an outbound of Xray's configuration is not read: take its share link")
    if not kind and "server_port" in item and "method" in item:
        return sip008_node(item)
    # An endpoint of sing-box may name the interface that it would have in the system.
    is_tagged = "tag" in item and ("name" not in item or "private_key" in item)
    if "server_port" in item or "server_ports" in item or is_tagged:
        return None if kind.lower() in NOT_NODES else outbound_node(item)
    return clash_node(item)


_NOT_NODES_OF_XRAY: Final = ("freedom", "blackhole", "dns", "loopback")


def _link_node(link: str) -> ParsedNode | Unreadable:
    try:
        return parse_link(link)
    except Unreadable as why:
        return why
