"""Clash proxy entries in text: the small part of YAML that they are written in.

The entries are read from the parser's events, not by a YAML loader. This bounds their depth and
size, also where anchors multiply them, and keeps the text of each scalar (`formats.scalars`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, Final

import msgspec
import yaml
from yaml._yaml import CParser

from egressd.formats.rows import ROW_MAX, TEXT_MAX, Unreadable
from egressd.formats.scalars import Scalar
from egressd.model.names import has_control_characters

DEPTH_MAX: Final = 6
"""Levels of nested mappings and sequences in an entry, the outermost included."""
ANCHORS_MAX: Final = 4096
"""Anchors kept of a text. An alias to a later one is refused."""
ANCHORED_MAX: Final = 1024 * 1024
"""Characters kept of all anchored values together. An alias to a later one is refused."""

_WORDS: Final = {"": None, "~": None, "null": None, "true": True, "false": False}
"""The plain scalars, except numbers, that YAML's core schema gives a meaning (in either case)."""
_DIGITS: Final = frozenset("-0123456789")
_CORE: Final = "tag:yaml.org,2002:"
_TEXT_TAGS: Final = frozenset({"!", "!str", "str", _CORE + "str"})
_OTHER_TAGS: Final = frozenset(
    _CORE + kind for kind in ("int", "float", "bool", "null", "map", "seq", "merge")
)
_MERGE: Final = "<<"


class _Anchored(msgspec.Struct, frozen=True):
    """The value of an anchor, its size in characters, and its depth of nesting."""

    value: Any
    size: int
    depth: int


class Anchors:
    """The anchors of a text, and the characters that their aliases have brought so far."""

    def __init__(self) -> None:
        self._kept: dict[str, _Anchored] = {}
        self._kept_size = 0
        self._expanded = 0
        self._refused: dict[str, str] = {}
        """Name of an anchor -> the reason for which its value could not be taken."""

    def define(self, name: str, value: Any, size: int, depth: int) -> None:
        """Keep an anchor's value, unless the limits on anchors are reached."""
        if len(self._kept) < ANCHORS_MAX and self._kept_size + size <= ANCHORED_MAX:
            self._kept[name] = _Anchored(value, size, depth)
            self._kept_size += size
        else:
            self._kept.pop(name, None)

    def refuse(self, name: str, reason: str) -> None:
        """Keep the reason for which an anchor's value cannot be taken, for aliases to it."""
        if len(self._refused) < ANCHORS_MAX:
            self._refused.setdefault(name, reason)

    def resolve(self, name: str) -> _Anchored:
        """Return the value of an anchor. Raises Unreadable."""
        found = self._kept.get(name)
        if found is None and name in self._refused:
            raise Unreadable(self._refused[name])
        if found is None:
            raise Unreadable(
                "a YAML alias must have its anchor before it, which must be one of the first "
                f"{ANCHORS_MAX} and of {ANCHORED_MAX} characters together"
            )
        self._expanded += found.size
        if self._expanded > TEXT_MAX:
            raise Unreadable(
                f"the text must not be over {TEXT_MAX} characters with its YAML aliases resolved"
            )
        return found


def read_entry_text(text: str, anchors: Anchors | None = None) -> Any:
    """Return the value that `text` holds: mappings, lists and `Scalar`. Bare pairs on one line,
    such as ``key: value``, are read as a mapping.

    Aliases stand for the values in `anchors`, to which the text's own anchors are added. Raises
    Unreadable.
    """
    if len(text) > ROW_MAX:
        raise Unreadable(f"the entry must not be over {ROW_MAX} characters")
    if has_control_characters(text.replace("\t", " ").replace("\n", " ")):
        raise Unreadable("the entry must not contain control characters")
    anchors = anchors or Anchors()
    if "\n" in text:
        return _Builder(text, anchors).document()
    row = _BARE_ITEM.sub("", text.strip())
    if not row.startswith(("{", "[", "- ")):
        row = f"{{{row}}}"
    try:
        return _Builder(row, anchors).document()
    except Unparsable:
        if not row.startswith("{"):
            raise
        # It may be an entry of a list, with the comma behind it, or several entries.
        return _Builder(f"[{row}]", anchors).document()


def keep_anchors(text: str, anchors: Anchors) -> None:
    """Add the anchors of a part of a document to `anchors`, as far as it can be read."""
    with suppress(Unparsable):
        _Builder(text, anchors).keep_anchors()


def flow_items(text: str, anchors: Anchors) -> Iterator[tuple[int, Any]]:
    """Yield the items of a list in brackets, or of the lists of nodes in a mapping, each with the
    number of its first line, from 0. An item that cannot be read is an Unreadable. Raises
    Unparsable where the text cannot be read any further.
    """
    return _Builder(text, anchors).items()


class Unparsable(Unreadable):
    """A text that is not YAML. ``line`` is the line of the fault, counted from 0."""

    line = 0


def _unparsable(error: yaml.YAMLError) -> Unparsable:
    reason = getattr(error, "problem", None) or "not a YAML mapping"
    fault = Unparsable(f"the entry must be readable as YAML: {reason}")
    mark = getattr(error, "problem_mark", None)
    fault.line = mark.line if mark is not None else 0
    return fault


_BARE_ITEM: Final = re.compile(r"- +(?=[A-Za-z-]+: )")
"""The dash before several pairs on one line. YAML allows only one pair there."""
_SURROGATES: Final = re.compile(r"\\u([dD][89abAB][0-9a-fA-F]{2})\\u([dD][c-fC-F][0-9a-fA-F]{2})")


def _joined(text: str) -> str:
    """Return `text` with JSON's surrogate-pair escapes replaced by the characters they stand for,
    since YAML does not join surrogates.
    """
    if "\\u" not in text:
        return text
    return _SURROGATES.sub(lambda pair: bytes.fromhex(pair[1] + pair[2]).decode("utf-16-be"), text)


def _line_of(event: yaml.Event) -> int:
    return event.start_mark.line if event.start_mark else 0


class _Builder:
    """Makes a value of a stream of parser events, without recursion in the parser."""

    def __init__(self, text: str, anchors: Anchors) -> None:
        try:
            self._next: Callable[[], Any] = CParser(_joined(text)).get_event
        except yaml.YAMLError as error:
            raise _unparsable(error) from error
        self._anchors = anchors
        self._size = 0
        self._deepest = 0
        self._open = 0
        """The number of collections that have begun and not ended."""

    def document(self) -> Any:
        """Return the value of the only document."""
        try:
            self._expect(yaml.StreamStartEvent)
            self._expect(yaml.DocumentStartEvent)
            value = self._value(self._next(), 1)
            self._expect(yaml.DocumentEndEvent)
            self._expect(yaml.StreamEndEvent)
        except yaml.YAMLError as error:
            raise _unparsable(error) from error
        return value

    def items(self) -> Iterator[tuple[int, Any]]:
        """Yield the items of the only document, which is a list, or a mapping with lists of nodes;
        see `flow_items`.
        """
        try:
            self._expect(yaml.StreamStartEvent)
            self._expect(yaml.DocumentStartEvent)
            if type(event := self._next()) is yaml.SequenceStartEvent:
                yield from self._items()
                return
            if type(event) is not yaml.MappingStartEvent:
                raise Unreadable(_ONE_DOCUMENT)
            while type(key := self._next()) is not yaml.MappingEndEvent:
                name = self._item(key)  # it may have anchors, as its value may
                event = self._next()
                is_list = isinstance(name, Scalar) and name.text.lower() in _LISTS
                if is_list and type(event) is yaml.SequenceStartEvent:
                    yield from self._items()
                else:
                    self._item(event)
        except yaml.YAMLError as error:
            raise _unparsable(error) from error

    def _items(self) -> Iterator[tuple[int, Any]]:
        while type(event := self._next()) is not yaml.SequenceEndEvent:
            yield _line_of(event), self._item(event)

    def _item(self, event: yaml.Event) -> Any:
        """Return the value that begins with `event`, or an Unreadable with the reason."""
        self._size = self._deepest = self._open = 0
        try:
            return self._value(event, 1)
        except Unreadable as why:
            while self._open:
                event = self._next()
                self._open += isinstance(event, yaml.CollectionStartEvent)
                self._open -= isinstance(event, yaml.CollectionEndEvent)
            return why

    def keep_anchors(self) -> None:
        """Read the whole text, and keep only the values of anchors."""
        try:
            while type(event := self._next()) is not yaml.StreamEndEvent:
                if getattr(event, "anchor", None) and type(event) is not yaml.AliasEvent:
                    self._size = self._deepest = 0
                    self._value(event, 1)
        except (yaml.YAMLError, Unreadable):
            return  # an alias to a missing anchor reports it

    def _expect(self, kind: type[yaml.Event]) -> None:
        if not isinstance(self._next(), kind):
            raise Unreadable(_ONE_DOCUMENT)

    def _value(self, event: Any, depth: int) -> Any:
        if type(event) is yaml.AliasEvent:
            return self._alias(str(event.anchor), depth)
        if event.anchor is None:
            return self._own(event, depth)
        size, deepest = self._size, self._deepest
        self._size, self._deepest = 0, depth - 1
        try:
            value = self._own(event, depth)
        except Unreadable as why:
            self._anchors.refuse(event.anchor, str(why))
            raise
        self._anchors.define(event.anchor, value, self._size, self._deepest - depth + 1)
        self._grow(size, deepest)
        return value

    def _alias(self, name: str, depth: int) -> Any:
        found = self._anchors.resolve(name)
        self._grow(found.size, depth + found.depth - 1)
        return found.value

    def _grow(self, size: int, depth: int = 0) -> None:
        """Count characters, and levels below the outermost. Raises Unreadable."""
        self._size += size
        if self._size > ROW_MAX:
            raise Unreadable(
                f"the entry must not be over {ROW_MAX} characters with its YAML aliases resolved"
            )
        if depth > self._deepest:
            self._deepest = depth
            if depth > DEPTH_MAX:
                raise Unreadable(f"the entry must not be nested over {DEPTH_MAX} deep")

    def _own(self, event: Any, depth: int) -> Any:
        kind, tag = type(event), event.tag
        if kind is not yaml.ScalarEvent:
            self._open += 1
        if tag is not None and tag not in _TEXT_TAGS and tag not in _OTHER_TAGS:
            raise Unreadable("the entry must not hold YAML tags but those of texts")
        if kind is yaml.ScalarEvent:
            text = event.value
            self._grow(len(text) + 1)
            if tag in _TEXT_TAGS:
                return Scalar(text, text)
            return _scalar(text, is_plain=event.implicit[0] or tag is not None)
        self._grow(1, depth)
        value = self._mapping(depth) if kind is yaml.MappingStartEvent else self._list(depth)
        self._open -= 1
        return value

    def _list(self, depth: int) -> list[Any]:
        items = []
        while type(event := self._next()) is not yaml.SequenceEndEvent:
            items.append(self._value(event, depth + 1))
        return items

    def _mapping(self, depth: int) -> dict[str, Any]:
        made: dict[str, Any] = {}
        merged: list[Any] = []
        while type(event := self._next()) is not yaml.MappingEndEvent:
            key = self._key(event, depth + 1)
            item = self._next()
            if type(item) is yaml.ScalarEvent and item.anchor is None and item.tag is None:
                text = item.value
                self._grow(len(text) + 1)
                value: Any = _scalar(text, is_plain=item.implicit[0])
            else:
                value = self._value(item, depth + 1)
            if key in made:
                raise Unreadable(_KEYS)
            if key == _MERGE and event.implicit[0]:
                merged += value if isinstance(value, list) else [value]
            else:
                made[key] = value
        return _with_merged(made, merged) if merged else made

    def _key(self, event: Any, depth: int) -> str:
        if type(event) is yaml.ScalarEvent and event.anchor is None and event.tag is None:
            self._grow(len(event.value) + 1)
            return str(event.value)
        key = self._value(event, depth)
        if not isinstance(key, Scalar):
            raise Unreadable(_KEYS)
        return key.text


_LISTS: Final = ("proxies", "proxy")
_ONE_DOCUMENT: Final = "the entry must be one YAML document"
_KEYS: Final = "the entry's keys must be texts, each given once"


def _with_merged(made: dict[str, Any], merged: list[Any]) -> dict[str, Any]:
    """Return a mapping over the contents of its merge keys (https://yaml.org/type/merge.html)."""
    if not all(isinstance(mapping, dict) for mapping in merged):
        raise Unreadable("a YAML merge key must have a mapping, or a list of them")
    below: dict[str, Any] = {}
    for mapping in reversed(merged):
        below |= mapping
    return {**below, **made}


def _scalar(text: str, *, is_plain: bool) -> Scalar:
    if is_plain:
        if len(text) < 6 and (word := text.lower()) in _WORDS:
            return Scalar(text, _WORDS[word])
        is_short = text[0] in _DIGITS and len(text) < 19 and text.isascii()
        if is_short and text.removeprefix("-").isdigit():
            return Scalar(text, int(text))
    return Scalar(text, text)
