"""Import text, one row a line: the rows, their fields, and what became of each.

Blank lines and lines that begin with ``#`` are passed over. One bad row never stops the
others: a parser yields an `Accepted` or a `BadRow` for each, in order, without keeping them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Final, Generic, TypeVar

import msgspec

from egressd.model.bounds import LINES_MAX, ROWS_MAX
from egressd.model.errors import Invalid
from egressd.model.names import has_control_characters

T = TypeVar("T")

ROW_MAX: Final = 64 * 1024
"""Characters in a row."""
TEXT_MAX: Final = 16 * 1024 * 1024
"""Characters that the rows of a text may be, with all that stands for more of them resolved."""

INVISIBLE: Final = (
    "\ufeff\u200b\u200c\u200d\u200e\u200f\u2060\u2061\u2062\u2063\u2064"
    "\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u00ad\u061c\u180e"
)
"""A byte order mark, and what else is not seen: passed over around rows, as files that were joined
and texts that were copied have it. Variation selectors are none of it: emoji end with them.
"""
_BLANK: Final = INVISIBLE + " \t\n\v\f\r\xa0"

FIELDS_MAX: Final = 64
"""Fields in a row: several times those of the longest form."""

SEPARATORS: Final = ",\t;|，"  # noqa: RUF001 (a full-width comma, as Chinese keyboards type it)
"""What parts a row's fields. The first of these that the row holds does."""

_SIGNS: Final = "[=+@\t\r\uff0b\uff0d\uff1d\uff20-]"
_FORMULA: Final = re.compile(f"(?:^(?='*{_SIGNS})|(?<=;)(?=['\"]*{_SIGNS}))")
"""Where a spreadsheet sees the beginning of a formula, in its full width as well (OWASP, "CSV
injection"): where a field begins, behind as many apostrophes as there may be; and behind a
semicolon, which parts fields where people write a comma in numbers. There a field has quotes."""
_GUARD: Final = re.compile(f"{_FORMULA.pattern}'")
"""The apostrophe that `guarded` puts there."""
_LINE: Final = re.compile(r"[^\n]+")
_QUOTED: Final = re.compile(r' *"((?:[^"]|"")*+)" *')


class Row(msgspec.Struct, frozen=True):
    """A line of the text: its number, from 1, and what it holds, trimmed."""

    line: int
    text: str


class Accepted(msgspec.Struct, Generic[T], frozen=True):
    """A row that was understood. ``notes`` tell what of it has no effect, or was taken as what."""

    line: int
    draft: T
    notes: tuple[str, ...] = ()


class BadRow(msgspec.Struct, frozen=True):
    """A row that was not, and why. The reason repeats no value, since some are secrets."""

    line: int
    reason: str

    def __str__(self) -> str:
        return f"line {self.line}: {self.reason}"


class Unreadable(ValueError):
    """Why a row could not be understood; its text is the reason."""


def rows(text: str) -> Iterator[Row]:
    """The rows of `text` that hold something. LF and CRLF end a line. Raises Invalid as
    `numbered_lines` does.
    """
    for number, line in numbered_lines(text):
        if row := row_of(line):
            yield Row(number, row)


def row_of(line: str) -> str:
    """The row that a line holds, trimmed; empty for a comment, and where there is none."""
    row = trimmed(line)
    if not row or row[0] == "#":
        return ""
    # Tabs at the end are empty fields where fields are parted by tabs.
    if "\t" in line and _separator(row) == "\t":
        return line.lstrip(_BLANK).rstrip(" \r")
    return row


def trimmed(line: str) -> str:
    """`line` without white space and invisible characters at its ends."""
    stripped = line.strip()
    if stripped and (stripped[0] in INVISIBLE or stripped[-1] in INVISIBLE):
        return stripped.strip(_BLANK)
    return stripped


def bounded(found: Iterable[T]) -> Iterator[T]:
    """What became of each row. Raises Invalid, once there are more than `ROWS_MAX`: a text of some
    megabytes can have more than anybody waits for.
    """
    for number, row in enumerate(found):
        if number == ROWS_MAX:
            raise Invalid(f"text must have at most {ROWS_MAX} rows")
        yield row


def each_row(text: str, read: Callable[[str], T]) -> Iterator[Accepted[T] | BadRow]:
    """What `read` makes of each row; it raises Unreadable for a row that is no good. Raises Invalid
    for too many.
    """
    for row in bounded(rows(text)):
        try:
            yield Accepted(row.line, read(row.text))
        except Unreadable as why:
            yield BadRow(row.line, str(why))


def numbered_lines(text: str) -> Iterator[tuple[int, str]]:
    """Each line that is not empty, with its number from 1, without a byte order mark. Raises
    Invalid as `check_lines` does.
    """
    check_lines(text)
    for number, _, line in placed_lines(text, 1 if text.startswith("\ufeff") else 0):
        yield number, line


def check_lines(text: str) -> None:
    """Raise Invalid when there are more lines than `LINES_MAX`."""
    if text.count("\n") > LINES_MAX:
        raise Invalid(f"text must have at most {LINES_MAX} lines")


def placed_lines(text: str, position: int = 0) -> Iterator[tuple[int, int, str]]:
    """As `numbered_lines`, from a position in the first line on, and with where each begins."""
    number = 1
    for match in _LINE.finditer(text, position):
        number += text.count("\n", position, match.start())
        position = match.end()
        yield number, match.start(), match.group().removesuffix("\r")


def fields(row: str, most: int = ROW_MAX) -> list[str]:
    """A row's fields, trimmed, but for what stands in double quotes, and as they were before
    `guarded`.

    A field that holds the separator stands there; or it is the last of `most`, which holds all the
    rest. Raises Unreadable: too long, a quote that does not close, a control character.
    """
    return [_unguarded(field) for field in separated(row, _separator(row), most)]


def guarded(field: str) -> str:
    """Return a field of a file that people open in spreadsheets: with an apostrophe before what
    they would take for a formula. What begins with such apostrophes has one more.
    """
    return _FORMULA.sub("'", field)


def _unguarded(field: str) -> str:
    """Return the field that `guarded` made this one of."""
    return _GUARD.sub("", field)


def _separator(row: str) -> str:
    return next((s for s in SEPARATORS if s in row), SEPARATORS[0])


def separated(row: str, separator: str, most: int = ROW_MAX) -> list[str]:
    """As `fields`, with a given separator, and apostrophes as they are."""
    if len(row) > ROW_MAX:
        raise Unreadable(f"the row must not be over {ROW_MAX} characters")
    found: list[str] = []
    start = 0
    while start <= len(row):
        if len(found) == FIELDS_MAX:
            raise Unreadable(f"the row must not have over {FIELDS_MAX} fields")
        is_last = len(found) + 1 == most
        field, end = _rest(row, start) if is_last else _field(row, start, separator)
        found.append(field)
        start = end + len(separator)
    if any(has_control_characters(field) for field in found):
        raise Unreadable("the row must not contain control characters")
    return found


def _rest(row: str, start: int) -> tuple[str, int]:
    """All that begins at `start`, as one field, and where it ends."""
    quoted = _QUOTED.fullmatch(row, start)
    return (_unquoted(quoted) if quoted else row[start:].strip()), len(row)


def _field(row: str, start: int, separator: str) -> tuple[str, int]:
    """The field that begins at `start`, and where it ends."""
    # Not by `csv`, which does not tell what was in quotes.
    if quoted := _QUOTED.match(row, start):
        end = quoted.end()
        if end == len(row) or row.startswith(separator, end):
            return _unquoted(quoted), end
    else:
        end = row.find(separator, start)
        field = row[start : end if end >= 0 else len(row)]
        if not field.lstrip(" ").startswith('"'):
            return field.strip(), start + len(field)
    raise Unreadable(
        "a double quote that opens a field must close it too (double the quotes inside)"
    )


def _unquoted(quoted: re.Match[str]) -> str:
    return quoted[1].replace('""', '"')
