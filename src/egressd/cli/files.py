"""Text files that commands read."""

from __future__ import annotations

import sys
from typing import IO, Final

import click

from egressd.formats.rows import rows
from egressd.model.errors import Invalid

TEXT_FILE: Final = click.File("r", encoding="utf-8-sig")
"""A file's name, or ``-`` for standard input; see `read_text`."""


def read_text(file: IO[str]) -> str:
    """Return the content of the file. Raises Invalid if it is not UTF-8."""
    try:
        return file.read()
    except UnicodeDecodeError:
        # By default spreadsheets save CSV in the system's own encoding.
        raise Invalid(f"{file.name} must be text in UTF-8: save it as such") from None


def typed_or_read(argument: str) -> str:
    """Return an argument, or the first line of standard input if it is ``-``, so that no list of
    processes shows a secret.
    """
    return sys.stdin.readline().strip() if argument == "-" else argument


def read_rows(file: IO[str], *, replace: bool) -> str:
    """Return the text of an import. Raises Invalid if it has no row and `replace` is set.

    Such an import would remove everything. The API does that; here the cause is more likely a
    command that failed before the pipe.
    """
    text = read_text(file)
    if replace and not any(rows(text)):
        raise Invalid("FILE must have a row where it is to replace all there are")
    return text
