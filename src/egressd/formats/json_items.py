"""The nodes of JSON documents, one at a time: of a Clash or sing-box configuration, of a SIP008
list, or of a list of any of these.

Documents are scanned item by item, so that a large one is never held as objects, and an unreadable
item does not spoil the others. Comments (``//``, ``/* */``, ``#``) and extra commas at the end of a
list or an object are skipped.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from egressd.formats.clash_text import DEPTH_MAX, read_entry_text
from egressd.formats.rows import INVISIBLE, ROW_MAX, Unreadable
from egressd.formats.scalars import Scalar
from egressd.model.strict_json import json_decoder

_SKIPPED_DEPTH_MAX: Final = 64
"""Levels of nested objects and lists in skipped text."""
LISTS: Final = ("proxies", "Proxy", "outbounds", "endpoints", "servers", "configs", "links")
"""Keys of a document that have lists of nodes."""

_TEXT: Final = r'"(?:[^"\\]++|\\.)*+(?:"|\\?\Z)'
_COMMENT: Final = r"//[^\n]*+|/\*.*?(?:\*/|\Z)|#[^\n]*+"
"""A comment or text without an end extends to the text's end, so that none is scanned again."""
_GAP: Final = re.compile(rf"(?:[\s{INVISIBLE}]++|{_COMMENT})*+", re.DOTALL)
_STRING: Final = re.compile(r'"(?:[^"\\]++|\\.)*+"', re.DOTALL)
_BRACKET: Final = re.compile(rf"{_TEXT}|{_COMMENT}|([\[{{])|([\]}}])", re.DOTALL)
_WORD: Final = re.compile(r'[^\s,\[\]{}"]+')
_LOOSE: Final = re.compile(rf"({_TEXT})|{_COMMENT}|,(?=(?:\s++|{_COMMENT})*+[\]}}])", re.DOTALL)
_SHORT: Final = 4096
"""Characters that are decoded first. Most items are shorter."""


class NoJson(ValueError):
    """The text at an offset is not JSON."""


class JsonItems:
    """The items of the JSON value that begins at an offset of a text.

    Iterating yields the offset of each item, and its value or an Unreadable. Numbers are `Scalar`,
    so that their text is kept. ``start`` is the offset of the value, behind comments; after
    iterating, ``end`` is the offset behind it.
    """

    def __init__(self, text: str, start: int) -> None:
        self._text = text
        self.end = self.start = self._gap(start)
        self.looked = self.start - start
        """The number of characters that were scanned to see whether JSON begins here."""

    def __iter__(self) -> Iterator[tuple[int, Any]]:
        try:
            yield from self._items(self.end)
        except NoJson as why:
            place = self.end
            try:
                self.end = self._skip(self.start)  # the text behind it may be fine
            except NoJson:
                self.end = len(self._text)
            yield place, Unreadable(str(why))

    def is_there(self) -> bool:
        """True if a JSON object or list begins here, and not a YAML one."""
        first = self._text[self.end : self.end + 1]
        at = self._gap(self.end + 1)
        self.looked += at - self.end
        following = self._text[at : at + 1]
        return following != "" and following in {"{": '"', "[": '{["'}.get(first, "")

    def _items(self, start: int) -> Iterator[tuple[int, Any]]:
        if self._text[start] == "[":
            yield from self._list(start)
            return
        self.end = start
        is_document = False
        for key, place in self._keys(start):
            if key in LISTS and self._text.startswith("[", place):
                is_document = True
                yield from self._list(place)
            else:
                self.end = self._skip(place)
        if not is_document:
            end = self.end
            yield start, self._value(start, end)
            self.end = end

    def _keys(self, start: int) -> Iterator[tuple[str, int]]:
        """Yield the keys of the object at `start`, and the offsets of their values.

        The caller sets ``end`` behind each value.
        """
        at = self._gap(start + 1)
        while not self._text.startswith("}", at):
            match = _STRING.match(self._text, at)
            if match is None:
                raise self._fault(at, "a key in double quotes")
            at = self._gap(match.end())
            if not self._text.startswith(":", at):
                raise self._fault(at, "a colon")
            at = self._gap(at + 1)
            yield match[0][1:-1], at
            at = self._behind_comma(self.end, "}")
        self.end = at + 1

    def _list(self, start: int) -> Iterator[tuple[int, Any]]:
        at = self._gap(start + 1)
        while not self._text.startswith("]", at):
            yield self._item(at)
            at = self._behind_comma(self.end, "]")
        self.end = at + 1

    def _behind_comma(self, at: int, closing: str) -> int:
        at = self._gap(at)
        if self._text.startswith(",", at):
            return self._gap(at + 1)
        if not self._text.startswith(closing, at):
            raise self._fault(at, f"a comma or {closing}")
        return at

    def _item(self, at: int) -> tuple[int, Any]:
        if self._text[at : at + 1] in ("{", "["):
            try:
                value, length = _DECODER.raw_decode(self._text[at : at + _SHORT])
            except (ValueError, RecursionError):
                pass  # longer, or not quite JSON
            else:
                self.end = at + length
                return at, value
        self.end = self._skip(at)
        return at, self._value(at, self.end)

    def _value(self, start: int, end: int) -> Any:
        """Return the value from `start` to `end`, or an Unreadable with the reason."""
        if end - start > ROW_MAX:
            return Unreadable(f"the entry must not be over {ROW_MAX} characters")
        text = self._text[start:end]
        if _depth(text) > DEPTH_MAX:
            return Unreadable(f"the entry must not be nested over {DEPTH_MAX} deep")
        try:
            return _DECODER.decode(text)
        except ValueError:
            pass
        text = _LOOSE.sub(lambda match: match[1] or " ", text)
        try:
            return _DECODER.decode(text)
        except ValueError:
            pass
        try:
            return read_entry_text(text)
        except Unreadable as why:
            return why

    def _skip(self, at: int) -> int:
        """Return the offset behind the value at `at`."""
        text = self._text
        if text[at : at + 1] not in ("{", "["):
            match = _STRING.match(text, at) or _WORD.match(text, at)
            if match is None:
                raise self._fault(at, "a value")
            return match.end()
        depth = 0
        for match in _BRACKET.finditer(text, at):
            if match[1]:
                depth += 1
                if depth > _SKIPPED_DEPTH_MAX:
                    raise NoJson(f"the entry must not be nested over {DEPTH_MAX} deep")
            elif match[2]:
                depth -= 1
                if not depth:
                    return match.end()
        raise self._fault(at, "a value that ends")

    def _gap(self, at: int) -> int:
        match = _GAP.match(self._text, at)
        return match.end() if match else at

    def _fault(self, at: int, wanted: str) -> NoJson:
        self.end = min(at, len(self._text))
        return NoJson(f"the text must be readable as JSON: {wanted} was expected here")


def _depth(text: str) -> int:
    depth = deepest = 0
    for match in _BRACKET.finditer(text):
        depth += bool(match[1]) - bool(match[2])
        deepest = max(deepest, depth)
    return deepest


def _number(text: str) -> Scalar:
    return Scalar(text, int(text) if len(text) < 19 and text.lstrip("-").isdigit() else text)


_DECODER: Final = json_decoder(integer=_number, real=_number)
