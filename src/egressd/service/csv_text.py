"""Tables as CSV, for spreadsheets."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from egressd.formats.rows import guarded


def as_csv(names: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return rows below their names as CSV (RFC 4180), which no spreadsheet takes for formulas."""
    lines = (",".join(map(_field, row)) for row in (names, *rows))
    return "".join(f"{line}\r\n" for line in lines)


def _field(value: object) -> str:
    text = guarded(str(value))
    return '"{}"'.format(text.replace('"', '""')) if {*',"\r\n'} & {*text} else text
