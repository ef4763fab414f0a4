"""The table of reasons in ``docs/lines.md``."""

from __future__ import annotations

from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).resolve().parents[3]


class Row(NamedTuple):
    """A row of the table."""

    state: str
    reason: str
    said: str
    does: str
    help: str


def table() -> list[Row]:
    """The rows of the table."""
    text = (ROOT / "docs" / "lines.md").read_text()
    section = text.partition("### Reasons")[2].partition("\n## ")[0]
    rows = [line.strip("|").split("|") for line in section.splitlines() if line.startswith("| `")]
    return [Row(cells[0].strip(" `"), *(cell.strip() for cell in cells[1:])) for cells in rows]
