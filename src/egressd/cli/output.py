"""The output of commands: tables for people, lines with tabs for pipes, JSON for programs."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click
import msgspec

from egressd.formats.rows import INVISIBLE, guarded

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

# Fields that an import would split, trim, or skip as a comment: rows here are split at commas.
_NEEDS_QUOTES = re.compile(rf'[",\r\n]|\A[\s#{INVISIBLE}]|[\s{INVISIBLE}]\Z')

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


def show_json(document: Any) -> None:
    """Print a document as JSON."""
    click.echo(msgspec.json.format(msgspec.json.encode(document), indent=2))


def show_rows(rows: Sequence[Mapping[str, Any]], columns: Sequence[str], as_json: bool) -> None:
    """Print the given columns of rows; with `as_json` print whole rows."""
    if as_json:
        show_json(rows)
    elif sys.stdout.isatty():
        _show_table([[_text(row[c]) for c in columns] for row in rows], columns)
    else:
        for row in rows:
            click.echo("\t".join(_text(row[column]) for column in columns))


def show_fields(fields: Mapping[str, Any], as_json: bool) -> None:
    """Print names and values, one pair per line."""
    if as_json:
        show_json(fields)
        return
    width = max(map(len, fields), default=0)
    for name, value in fields.items():
        click.echo(f"{name:<{width}}  {_text(value)}")


def done(answer: Mapping[str, Any], as_json: bool = False) -> None:
    """Print the answer to a change."""
    if as_json:
        show_json(answer)
    else:
        click.echo(answer["msg"])


def write_rows(rows: Iterable[Sequence[object]]) -> str:
    """Return rows in the form that imports read, and that no spreadsheet takes for formulas."""
    return "".join(",".join(_quoted(str(field)) for field in row) + "\n" for row in rows)


@contextmanager
def progress(total: int, what: str) -> Iterator[Callable[[], object]]:
    """Yield a function to call after each of `total` steps. It moves a bar if standard error is a
    terminal.
    """
    if not sys.stderr.isatty():
        yield lambda: None
        return
    with click.progressbar(length=total, label=what, file=sys.stderr) as bar:
        yield lambda: bar.update(1)


def _quoted(field: str) -> str:
    field = guarded(field)
    return '"{}"'.format(field.replace('"', '""')) if _NEEDS_QUOTES.search(field) else field


def _show_table(cells: list[list[str]], columns: Sequence[str]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, header_style="bold", pad_edge=False)
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in cells:
        table.add_row(*map(Text, row))  # Text: names are no markup
    Console().print(table)


def _text(value: Any) -> str:
    """Return a value as one line, in which nothing can move a terminal's cursor."""
    match value:
        case bool():
            return "yes" if value else "no"
        case list() | tuple():
            return ", ".join(map(_text, value))
        case _:
            text = str(value)
            return (
                text
                if text.isprintable()
                else "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)
            )
