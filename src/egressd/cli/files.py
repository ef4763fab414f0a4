"""Text files that commands take."""

from __future__ import annotations

from typing import IO, Final

import click

from egressd.formats.rows import rows
from egressd.model.errors import Invalid

TEXT_FILE: Final = click.File("r", encoding="utf-8-sig")
"""A file's name, or ``-`` for standard input; see `read_text`."""


def read_text(file: IO[str]) -> str:
    """What the file holds. Raises Invalid."""
    try:
        return file.read()
    except UnicodeDecodeError:
        # Spreadsheets save CSV in the system's own encoding unless they are told otherwise.
        raise Invalid(f"{file.name} must be text in UTF-8: save it as such") from None


def read_rows(file: IO[str], *, replace: bool) -> str:
    """The text of an import. Raises Invalid.

    One without a row that replaces what there is would remove everything. The API takes it at its
    word; here it is a command before the pipe that failed.
    """
    text = read_text(file)
    if replace and not any(rows(text)):
        raise Invalid("FILE must have a row where it is to replace all there are")
    return text
