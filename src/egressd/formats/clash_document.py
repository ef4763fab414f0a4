"""A pasted Clash configuration, or a piece of its list of nodes: the items, one at a time."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from egressd.formats.clash_text import (
    ANCHORED_MAX,
    Anchors,
    Unparsable,
    flow_items,
    keep_anchors,
    read_entry_text,
)
from egressd.formats.rows import INVISIBLE, ROW_MAX, Row, Unreadable, trimmed

_PROXIES: Final = re.compile(
    r"""([ \ufeff]*)(?:(["']?)(?i:proxies)\2|Proxy) *:(?=\s|\Z|\[)""", re.MULTILINE
)
_HAS_PROXIES: Final = re.compile("^" + _PROXIES.pattern.replace(r"\Z", "$"), re.MULTILINE)
_FLOW_PROXIES: Final = re.compile(r"""[{,]\s*(["']?)(?i:proxies)\1\s*:\s*\[""")
_NEXT_KEY: Final = re.compile(r" *[^\s\]}#].*?:(?=\s|\Z)")
_ITEM: Final = re.compile(r"[ \t]*-(?=\s|\Z)")
_GOES_ON: Final = re.compile(r"^[ \t]+(?!-\s)[^\s#]", re.MULTILINE)
_LINK: Final = re.compile(r"""(?: *- +["']?)?(?=[A-Za-z0-9]+://)""")
_COMMENT: Final = re.compile(r"(?:^|\s)#.*\Z")
_ONE_ENTRY: Final = re.compile(r"(?:name|type|server|port):(?=\s)")
_KEYS_OF_ENTRIES: Final = [
    re.compile(rf"^{key}:(?=\s)", re.MULTILINE) for key in ("type", "server")
]
_FILLED: Final = re.compile(r"^([^\S\n]*+[^\s#][^\n]*)", re.MULTILINE)
_MARKER: Final = re.compile(r"(?:---|\.\.\.)(?:\s|\Z)|%(?:YAML|TAG)\b")
_ALIASED: Final = re.compile(r"(?:^|[\s,\[{:-])&[^\s,\[\]{}&]")
_FLOW_ITEM: Final = re.compile(r"[ \t]*-\s+[\[{]")
_NO_BRACKETS: Final = re.compile(
    r'"(?:[^"\\]++|\\.)*+(?:"|\\?\Z)' r"|'[^']*+(?:'|\Z)|(?:^|\s)#[^\n]*+", re.DOTALL
)
_NOTHING: Final = re.compile(r"(?:\[\s*\]|~|null|Null|NULL)?\Z")
_PROPERTIES: Final = re.compile(r"(?:[&!]\S*+\s++)++")

Found = tuple[int, Any]
"""The number of an item's first line, and the item: a link's `Row`, a value or an Unreadable."""


def document_items(text: str) -> Iterator[Found] | None:
    """Return the items of the lists of nodes in a Clash configuration, or in a piece of one, each
    with the number of its first line.

    Return None when `text` is no such list: no line begins with ``proxies:``, and either the first
    line is no block item (``- name: …``) or no item continues on the lines below it. Indentation
    alone separates items, so that one that is not YAML does not spoil the others. Share links may
    stand between and after them.
    """
    # Groups have keys of that name, too, but with a deeper indentation.
    level = min((head[1].count(" ") for head in _HAS_PROXIES.finditer(text)), default=None)
    first = next(_significant(text), None)
    if first is None:
        return None
    number, start, line = first
    if line.lstrip().startswith("{") and _FLOW_PROXIES.search(text):
        return _Document(text).flow(number, start)
    indent = len(line) - len(line.lstrip(" "))
    begins_with_item = _ITEM.match(line) is not None and not _LINK.match(line)
    if begins_with_item and (level is None or level > indent):
        return _Document(text).items(outer=0, level=0) if _GOES_ON.search(text) else None
    if level is not None:
        return _Document(text).items(outer=None, level=level)
    if _ONE_ENTRY.match(line) and all(key.search(text) for key in _KEYS_OF_ENTRIES):
        return _Document(text).entries(line.partition(":")[0])
    return None


def _significant(text: str) -> Iterator[tuple[int, int, str]]:
    """Yield the lines that hold more than a comment, with their numbers and offsets in `text`."""
    number, position = 1, 0
    for match in _FILLED.finditer(text):
        start = match.start(1)
        number += text.count("\n", position, start)
        position = start
        line = match[1].rstrip()
        first = line[0]
        if first in INVISIBLE or (first.isspace() and line.lstrip()[0] in INVISIBLE):
            seen = line.lstrip(INVISIBLE)
            start, line = start + len(line) - len(seen), seen
            if not (bare := trimmed(line)) or bare[0] == "#":
                continue
        if not (first in "-.%" and _MARKER.match(line)):
            yield number, start, line


class _Document:
    """Reads a document line by line, and gathers the lines of one part: an item, a list in
    brackets, or a part without a list of nodes, which may still define anchors.
    """

    def __init__(self, text: str) -> None:
        self._text = text
        self._anchors = Anchors()
        self._has_aliases = "*" in text and _ALIASED.search(text) is not None
        self._number = self._start = self._stop = 0
        """The line number, start offset and end offset of the gathered text. It is empty when both
        offsets are equal.
        """
        self._counted = self._open = 0
        """The offset up to which the gathered text's brackets were counted, and the number open
        there.
        """

    def flow(self, number: int, start: int) -> Iterator[Found]:
        """Yield the items of a configuration in brackets that begins at line `number`, offset
        `start`.
        """
        return self._flow(number, self._text[start:].replace("\r\n", "\n"))

    def entries(self, first_key: str) -> Iterator[Found]:
        """Yield entries that are in no list. Each of them begins with the same key."""
        for number, start, line in _significant(self._text):
            if line.partition(":")[0] == first_key:
                yield from self._end(0)
            self._add(number, start, line)
        yield from self._end(0)

    def items(self, outer: int | None, *, level: int) -> Iterator[Found]:
        """Yield the items of all lists of nodes, whose keys are indented by at most `level`.

        ``outer`` is the indentation of the key whose list is being read, None outside of one.
        """
        inner: int | None = None  # the indentation of the list's items
        is_flow = False
        empty = 0  # the line number of a key that has had no item yet
        for number, start, line in _significant(self._text):
            if "://" in line and (link := _LINK.match(line)):
                yield from self._end(outer, is_flow=is_flow)
                yield number, Row(number, line[link.end() :].rstrip("\"'"))
                empty = 0
                continue
            indent = len(line) - len(line.lstrip(" "))
            is_inside = outer is not None and indent > outer
            is_item = not is_flow and _ITEM.match(line) is not None
            if not is_inside and indent <= level and (head := _PROXIES.match(line)):
                yield from self._end(outer, is_flow=is_flow)
                if empty:
                    yield empty, Unreadable("the list holds no node")
                outer, inner, empty = indent, None, number
                behind = _PROPERTIES.sub("", _COMMENT.sub("", line[head.end() :]).strip() + " ")
                is_flow = behind.startswith("[") and not _NOTHING.match(behind.strip())
                if is_flow:
                    self._add(number, start, line)
                elif not _NOTHING.match(behind.strip()):
                    yield self._read(number, behind.strip())
                    empty = 0
                continue
            is_key = outer is not None and not is_inside and not is_item and _NEXT_KEY.match(line)
            if is_key and not self._is_in_brackets(is_flow=is_flow):
                yield from self._end(outer, is_flow=is_flow)
                outer, is_flow = None, False
            elif outer is None and indent == 0:
                yield from self._end(None)
            elif outer is not None and is_item and (inner is None or indent <= inner):
                yield from self._end(outer)
                inner = indent if inner is None else inner
            if outer is not None:
                is_flow = is_flow or (empty > 0 and line.lstrip().startswith("["))
                empty = 0
            self._add(number, start, line)
        yield from self._end(outer, is_flow=is_flow)
        if empty:
            yield empty, Unreadable("the list holds no node")

    def _add(self, number: int, start: int, line: str) -> None:
        if self._start == self._stop:
            self._number, self._start = number, start
            self._counted, self._open = start, 0
        self._stop = start + len(line)

    def _is_in_brackets(self, *, is_flow: bool) -> bool:
        """True if the next line is inside brackets, where indentation has no meaning."""
        if not is_flow and not _FLOW_ITEM.match(self._text, self._start):
            return False
        piece = _NO_BRACKETS.sub("", self._text[self._counted : self._stop])
        self._counted = self._stop
        self._open += sum(map(piece.count, "[{")) - sum(map(piece.count, "]}"))
        return self._open > 0

    def _end(self, outer: int | None, *, is_flow: bool = False) -> Iterator[Found]:
        """Yield the items of the gathered text, and clear it."""
        start, stop = self._start, self._stop
        self._start = self._stop = 0
        if start == stop:
            return
        if outer is None:
            if self._has_aliases and stop - start <= ANCHORED_MAX:
                part = self._text[start:stop]
                if "&" in part:
                    keep_anchors(part.replace("\r\n", "\n"), self._anchors)
        elif is_flow:
            yield from self._flow(self._number, self._text[start:stop].replace("\r\n", "\n"))
        elif stop - start > 2 * ROW_MAX:
            yield self._number, Unreadable(f"the entry must not be over {ROW_MAX} characters")
        else:
            yield self._read(self._number, self._text[start:stop].replace("\r\n", "\n"))

    def _read(self, number: int, text: str) -> Found:
        try:
            return number, read_entry_text(text, self._anchors)
        except Unreadable as why:
            return number, why

    def _flow(self, number: int, text: str) -> Iterator[Found]:
        at = number
        try:
            for line, item in flow_items(text, self._anchors):
                at = number + line
                yield at, item
        except Unparsable as why:
            yield max(at, number + why.line), why
        except Unreadable as why:
            yield at, why
