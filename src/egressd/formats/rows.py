"""Import text, one row a line: the rows, their fields, and the result of each.

Blank lines and lines that begin with ``#`` are skipped. One bad row never stops the others: a
parser yields an `Accepted` or a `BadRow` for each, in order, without keeping them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Final, Generic, TypeVar

import msgspec

from egressd.model.bounds import LINES_MAX, ROWS_MAX
from egressd.model.drafts import BadRow
from egressd.model.errors import Invalid, told
from egressd.model.faults import Fault, as_faults, fault
from egressd.model.names import has_control_characters
from egressd.model.wording import Sentence, together

T = TypeVar("T")

ROW_MAX: Final = 64 * 1024
"""Characters in a row."""
TEXT_MAX: Final = 16 * 1024 * 1024
"""Characters of all rows of a text together, with its aliases resolved."""

INVISIBLE: Final = (
    "\ufeff\u200b\u200c\u200d\u200e\u200f\u2060\u2061\u2062\u2063\u2064"
    "\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u00ad\u061c\u180e"
)
"""A byte order mark and other invisible characters. They are skipped around rows, since joined
files and copied texts contain them. Variation selectors are not among them: emoji end with them.
"""
_BLANK: Final = INVISIBLE + " \t\n\v\f\r\xa0"

FIELDS_MAX: Final = 64
"""Fields in a row: several times those of the longest form."""

SEPARATORS: Final = ",\t;|，"  # noqa: RUF001 (a full-width comma, as Chinese keyboards type it)
"""The separators of a row's fields. The first of these that the row holds is in use."""

_SIGNS: Final = "[=+@\t\r\uff0b\uff0d\uff1d\uff20-]"
_FORMULA: Final = re.compile(f"(?:^(?='*{_SIGNS})|(?<=;)(?=['\"]*{_SIGNS}))")
"""The places where a spreadsheet may see the beginning of a formula, full-width signs included
(OWASP, "CSV injection"): the start of a field, before any number of apostrophes; and behind a
semicolon, which separates fields in locales with a decimal comma. A field may be in quotes there.
"""
_GUARD: Final = re.compile(f"{_FORMULA.pattern}'")
"""The apostrophe that `guarded` inserts there."""
_LINE: Final = re.compile(r"[^\n]+")
_QUOTED: Final = re.compile(r' *"((?:[^"]|"")*+)" *')


class Row(msgspec.Struct, frozen=True):
    """A line of the text: its number, from 1, and its content, trimmed."""

    line: int
    text: str


class Accepted(msgspec.Struct, Generic[T], frozen=True):
    """A row that was understood. ``notes`` list the parts that had no effect or were read
    otherwise.
    """

    line: int
    draft: T
    notes: tuple[Sentence, ...] = ()


class Unreadable(ValueError):
    """The reason for which a row could not be understood: its faults. Most have only a text."""

    def __init__(self, *faults: Fault | str) -> None:
        self.faults = as_faults(faults)
        super().__init__(told(self.faults))

    @property
    def sentence(self) -> Sentence:
        """All faults as one sentence."""
        return together(fault.sentence for fault in self.faults)


def rows(text: str) -> Iterator[Row]:
    """Yield the rows of `text` that are not empty. LF and CRLF end a line. Raises Invalid as
    `numbered_lines` does.
    """
    for number, line in numbered_lines(text):
        if row := row_of(line):
            yield Row(number, row)


def row_of(line: str) -> str:
    """Return the trimmed row that a line holds, or an empty text for a comment or an empty line."""
    row = trimmed(line)
    if not row or row[0] == "#":
        return ""
    # Tabs at the end are empty fields where tabs separate fields.
    if "\t" in line and _separator(row) == "\t":
        return line.lstrip(_BLANK).rstrip(" \r")
    return row


def trimmed(line: str) -> str:
    """Return `line` without white space and invisible characters at its ends."""
    stripped = line.strip()
    if stripped and (stripped[0] in INVISIBLE or stripped[-1] in INVISIBLE):
        return stripped.strip(_BLANK)
    return stripped


def bounded(found: Iterable[T]) -> Iterator[T]:
    """Yield the result of each row. Raises Invalid after `ROWS_MAX` rows: the rows of a text of
    some megabytes could take too long.
    """
    for number, row in enumerate(found):
        if number == ROWS_MAX:
            raise Invalid(fault("text", "too-many-rows-of-text", most=ROWS_MAX))
        yield row


def each_row(text: str, read: Callable[[str], T]) -> Iterator[Accepted[T] | BadRow]:
    """Yield the result of `read` for each row; `read` raises Unreadable for a bad one. Raises
    Invalid for too many rows.
    """
    for row in bounded(rows(text)):
        try:
            yield Accepted(row.line, read(row.text))
        except Unreadable as why:
            yield BadRow(row.line, why.faults)


def numbered_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield each line that is not empty, with its number from 1, without a byte order mark. Raises
    Invalid as `check_lines` does.
    """
    check_lines(text)
    for number, _, line in placed_lines(text, 1 if text.startswith("\ufeff") else 0):
        yield number, line


def check_lines(text: str) -> None:
    """Raise Invalid when there are more lines than `LINES_MAX`."""
    if text.count("\n") > LINES_MAX:
        raise Invalid(fault("text", "too-many-lines", most=LINES_MAX))


def placed_lines(text: str, position: int = 0) -> Iterator[tuple[int, int, str]]:
    """Yield lines as `numbered_lines` does, from an offset in the first line, and with their
    offsets.
    """
    number = 1
    for match in _LINE.finditer(text, position):
        number += text.count("\n", position, match.start())
        position = match.end()
        yield number, match.start(), match.group().removesuffix("\r")


def fields(row: str, most: int = ROW_MAX) -> list[str]:
    """Return a row's fields, trimmed outside double quotes, and without the apostrophes of
    `guarded`.

    A field that holds the separator stands in double quotes, or is the last of `most` fields, which
    holds the rest of the row. Raises Unreadable: too long, a quote that does not close, a control
    character.
    """
    return [_unguarded(field) for field in separated(row, _separator(row), most)]


def guarded(field: str) -> str:
    """Return a field for a file that people open in spreadsheets: with an apostrophe before each
    place that could start a formula. A field that already begins with such apostrophes gets one
    more.
    """
    return _FORMULA.sub("'", field)


def _unguarded(field: str) -> str:
    """Return the field that `guarded` turned into this one."""
    return _GUARD.sub("", field)


def _separator(row: str) -> str:
    return next((s for s in SEPARATORS if s in row), SEPARATORS[0])


def separated(row: str, separator: str, most: int = ROW_MAX) -> list[str]:
    """Return fields as `fields` does, with a given separator, and with apostrophes unchanged."""
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
    """Return the rest of the row from `start` as one field, and its end."""
    quoted = _QUOTED.fullmatch(row, start)
    return (_unquoted(quoted) if quoted else row[start:].strip()), len(row)


def _field(row: str, start: int, separator: str) -> tuple[str, int]:
    """Return the field that begins at `start`, and its end."""
    # `csv` is not used, since it does not report which fields were in quotes.
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
