"""Import text, one row a line: the rows, their fields, and what became of each.

Blank lines and lines that begin with ``#`` are passed over. One bad row never stops the
others: a parser yields an `Accepted` or a `BadRow` for each, in order, without keeping them.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Iterator
from typing import Final, Generic, TypeVar

import msgspec

from egressd.model.names import has_control_characters

T = TypeVar("T")

ROW_MAX: Final = 64 * 1024
"""Characters in a row."""

SEPARATORS: Final = ",\t;|，"  # noqa: RUF001 (a full-width comma, as Chinese keyboards type it)
"""What parts a row's fields. The first of these that the row holds does."""

_LINE: Final = re.compile(r"[^\n]+")


class Row(msgspec.Struct, frozen=True):
    """A line of the text: its number, from 1, and what it holds, trimmed."""

    line: int
    text: str


class Accepted(msgspec.Struct, Generic[T], frozen=True):
    """A row that was understood."""

    line: int
    draft: T


class BadRow(msgspec.Struct, frozen=True):
    """A row that was not, and why. The reason repeats no value, since some are secrets."""

    line: int
    reason: str

    def __str__(self) -> str:
        return f"line {self.line}: {self.reason}"


class Unreadable(ValueError):
    """Why a row could not be understood; its text is the reason."""


def rows(text: str) -> Iterator[Row]:
    """The rows of `text` that hold something. LF and CRLF end a line."""
    for number, line in numbered_lines(text):
        stripped = line.strip()
        if stripped and not stripped.startswith("#"):
            yield Row(number, stripped)


def each_row(text: str, read: Callable[[str], T]) -> Iterator[Accepted[T] | BadRow]:
    """What `read` makes of each row; it raises Unreadable for a row that is no good."""
    for row in rows(text):
        try:
            yield Accepted(row.line, read(row.text))
        except Unreadable as why:
            yield BadRow(row.line, str(why))


def numbered_lines(text: str) -> Iterator[tuple[int, str]]:
    """Each line that is not empty, with its number from 1, without a byte order mark."""
    number, position = 1, 1 if text.startswith("\ufeff") else 0
    for match in _LINE.finditer(text, position):
        number += text.count("\n", position, match.start())
        position = match.end()
        yield number, match.group().removesuffix("\r")


def fields(row: str) -> list[str]:
    """A row's fields, trimmed. A field that holds the separator stands in double quotes.

    Raises Unreadable: too long, a quote that does not close, a control character.
    """
    separator = next((s for s in SEPARATORS if s in row), SEPARATORS[0])
    return separated(row, separator)


def separated(row: str, separator: str) -> list[str]:
    """As `fields`, with a given separator."""
    if len(row) > ROW_MAX:
        raise Unreadable(f"the row must not be over {ROW_MAX} characters")
    try:
        (found,) = csv.reader([row], delimiter=separator, skipinitialspace=True, strict=True)
    except (csv.Error, ValueError) as error:
        raise Unreadable(
            "a double quote that opens a field must close it too (double the quotes inside)"
        ) from error
    trimmed = [field.strip() for field in found]
    if any(has_control_characters(field) for field in trimmed):
        raise Unreadable("the row must not contain control characters")
    return trimmed
