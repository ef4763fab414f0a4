"""Samples and how they are shown."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median

from rich.console import Console
from rich.table import Table


def percentile(samples: Sequence[float], share: float) -> float:
    """The value that `share` (0 to 1) of the samples do not exceed: the nearest rank."""
    ordered = sorted(samples)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def spread(samples: Sequence[float]) -> dict[str, float]:
    """What is worth knowing of some samples."""
    return {
        "min": min(samples),
        "p50": median(samples),
        "p99": percentile(samples, 0.99),
        "max": max(samples),
        "count": len(samples),
    }


def show(title: str, rows: Mapping[str, Mapping[str, float | str]]) -> None:
    """Print a table: a row for each name, a column for each figure."""
    table = Table(title=title)
    columns = list(dict.fromkeys(column for row in rows.values() for column in row))
    table.add_column("")
    for column in columns:
        table.add_column(column, justify="right")
    for name, row in rows.items():
        table.add_row(name, *(_cell(row.get(column, "")) for column in columns))
    Console().print(table)


def keep(name: str, figures: Mapping[str, object]) -> None:
    """Write the figures to the file that follows ``--json`` on the command line, if any."""
    if "--json" in sys.argv:
        path = Path(sys.argv[sys.argv.index("--json") + 1])
        path.write_text(json.dumps({name: figures}, indent=2) + "\n")


def _cell(value: float | str) -> str:
    return value if isinstance(value, str) else f"{value:,.2f}"
