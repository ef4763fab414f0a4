"""Clash proxy entries in text: the small part of YAML that they are written in.

Read from the parser's events and not by a YAML loader, so that aliases and tags are refused,
depth is bounded and each scalar's own text is at hand: ``password: 0123`` means the four
characters, whatever YAML makes of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import chain, dropwhile
from typing import Any, Final

import msgspec
import yaml

from egressd.formats.fields import Kind, Table
from egressd.formats.rows import ROW_MAX, Row, Unreadable, numbered_lines
from egressd.model.names import has_control_characters

DEPTH_MAX: Final = 6
"""Nested mappings and sequences in an entry, the outermost included."""

_PROXIES: Final = re.compile(r"""(?:proxies|"proxies"|'proxies')\s*:(?=\s|\Z|\[)""")
_STARTS: Final = re.compile(rf"^\ufeff?{_PROXIES.pattern}", re.MULTILINE)
_NEXT_KEY: Final = re.compile(r"[^\s\]}][^\s]*\s*:(?=\s|\Z)")
_LINK: Final = re.compile(r"[A-Za-z0-9]+://")
_WORDS: Final = {"": None, "~": None, "null": None, "true": True, "false": False}
"""The plain scalars that YAML's core schema gives a meaning (in either case), less numbers."""
_INTEGER: Final = re.compile(r"-?[0-9]{1,18}\Z")


class Scalar(msgspec.Struct, frozen=True):
    """A scalar: its text, and what YAML takes it for (null, a boolean, a number or the text)."""

    text: str
    native: Any


def read_entry_text(text: str) -> Any:
    """The value that `text` holds: mappings, lists and `Scalar`. A bare list of
    ``key: value`` pairs on one line is taken as a mapping.

    Raises Unreadable.
    """
    if len(text) > ROW_MAX:
        raise Unreadable(f"the entry must not be over {ROW_MAX} characters")
    if any(has_control_characters(line) for line in text.replace("\t", " ").split("\n")):
        raise Unreadable("the entry must not contain control characters")
    is_bare = "\n" not in text and not text.lstrip().startswith(("{", "[", "- "))
    try:
        events = yaml.parse(f"{{{text}}}" if is_bare else text, Loader=yaml.CSafeLoader)
        return _Builder(events).document()
    except yaml.YAMLError as error:
        reason = getattr(error, "problem", None) or "not a YAML mapping"
        raise Unreadable(f"the entry must be readable as YAML: {reason}") from error


def entries_of_document(text: str) -> Iterator[Row] | None:
    """The items of a pasted ``proxies:`` list, each with the number of its first line.

    None when `text` is no such list: no line begins with ``proxies:`` and the first one is no
    block item (``- name: …``) that goes on below. Items are parted by indentation alone, so
    that one that is not YAML spoils no other.
    """
    if _STARTS.search(text):
        listed = dropwhile(lambda line: not _PROXIES.match(line[1]), _filled_lines(text))
        if (head := next(listed, None)) is not None:
            return _items(head, listed)
    lines = _filled_lines(text)
    first, second = next(lines, (0, "")), next(lines, (0, ""))
    if first[1].lstrip().startswith("- ") and second[1].startswith((" ", "\t")):
        return _items((0, "proxies:"), chain((first, second), lines))
    return None


def _filled_lines(text: str) -> Iterator[tuple[int, str]]:
    """The lines that hold something, with their numbers."""
    return (
        (number, line.rstrip())
        for number, line in numbered_lines(text)
        if line.strip() and not line.lstrip().startswith("#")
    )


def _items(head: tuple[int, str], lines: Iterator[tuple[int, str]]) -> Iterator[Row]:
    """The items below the first line, which is ``proxies:``, perhaps with a value behind it; and
    share links between and after them. A list of nothing has one item, which is an empty list.
    """
    number = head[0]
    is_empty = True
    behind = head[1].partition(":")[2].strip()
    if re.fullmatch(r"\[\s*\]", behind):
        behind = ""
    first: int | None = None
    item = _Item(behind)
    for at, line in lines:
        indent = len(line) - len(line.lstrip())
        first = indent if first is None else first
        if indent <= first and line.lstrip().startswith("-") and not behind:
            if item:
                yield Row(number, item.text)
            number, item = at, _Item()
        elif indent == 0 and _LINK.match(line):
            if item:
                yield Row(number, item.text)
            item = _Item()
            yield Row(at, line)
            is_empty = False
            continue
        elif indent == 0 and _NEXT_KEY.match(line):
            break  # the document goes on with another key
        item.add(line)
        is_empty = False
    if item or is_empty:
        yield Row(number, item.text or "[]")


class _Item:
    """An item's lines, as far as it is none that is too long anyway."""

    def __init__(self, line: str = "") -> None:
        self._lines = [line] if line else []
        self._length = len(line)
        """Characters of the text, and perhaps one more."""

    def __bool__(self) -> bool:
        return bool(self._lines)

    def add(self, line: str) -> None:
        """Put a line behind the others."""
        if self._length <= ROW_MAX + 1:
            self._lines.append(line)
            self._length += len(line) + 1

    @property
    def text(self) -> str:
        """All of it."""
        return "\n".join(self._lines)


class _Builder:
    """Makes a value of a stream of parser events, without recursion on the parser's side."""

    def __init__(self, events: Iterator[yaml.Event]) -> None:
        self._events = events

    def document(self) -> Any:
        """The only document's value."""
        self._expect(yaml.StreamStartEvent)
        self._expect(yaml.DocumentStartEvent)
        value = self._value(next(self._events), 1)
        self._expect(yaml.DocumentEndEvent)
        self._expect(yaml.StreamEndEvent)
        return value

    def _expect(self, kind: type[yaml.Event]) -> None:
        if not isinstance(next(self._events), kind):
            raise Unreadable("the entry must be one YAML document")

    def _value(self, event: yaml.Event, depth: int) -> Any:
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None):
            raise Unreadable("the entry must not hold YAML anchors or aliases")
        if getattr(event, "tag", None):
            raise Unreadable("the entry must not hold YAML tags")
        if isinstance(event, yaml.ScalarEvent):
            return _scalar(event)
        if depth > DEPTH_MAX:
            raise Unreadable(f"the entry must not be nested over {DEPTH_MAX} deep")
        return (
            self._mapping(depth) if isinstance(event, yaml.MappingStartEvent) else self._list(depth)
        )

    def _list(self, depth: int) -> list[Any]:
        items = []
        while not isinstance(event := next(self._events), yaml.SequenceEndEvent):
            items.append(self._value(event, depth + 1))
        return items

    def _mapping(self, depth: int) -> dict[str, Any]:
        made: dict[str, Any] = {}
        while not isinstance(event := next(self._events), yaml.MappingEndEvent):
            key = self._value(event, depth + 1)
            if not isinstance(key, Scalar) or key.text in made:
                raise Unreadable("the entry's keys must be texts, each given once")
            made[key.text] = self._value(next(self._events), depth + 1)
        return made


def _scalar(event: yaml.ScalarEvent) -> Scalar:
    text: str = event.value
    is_plain = event.implicit[0]
    if is_plain and text.lower() in _WORDS:
        return Scalar(text, _WORDS[text.lower()])
    return Scalar(text, int(text) if is_plain and _INTEGER.match(text) else text)


def to_json(value: Any, kind: Kind | Table | None) -> Any:
    """`value` with its scalars as JSON values: as `kind` reads them, or as YAML does without."""
    if isinstance(value, Scalar):
        if kind is None or value.native is None:
            return value.native
        return kind.from_text(value.text) if isinstance(kind, Kind) else value.text
    if isinstance(value, Mapping):
        if isinstance(kind, Table):
            return {key: to_json(item, kind.keys.get(key)) for key, item in value.items()}
        return {key: _inside(item, kind) for key, item in value.items()}
    return [_inside(item, kind) for item in value]


def _inside(value: Any, kind: Kind | Table | None) -> Any:
    """As `to_json`, for what stands inside a list or an object of one kind: texts."""
    if isinstance(value, Scalar):
        return value.native if kind is None else value.text
    return to_json(value, kind)
