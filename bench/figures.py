"""Samples, their statistics, and tables of them."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median

from rich.console import Console
from rich.table import Table

Tables = dict[str, dict[str, dict[str, float]]]
"""Spread and ratios, by figure and by measured name."""


def percentile(samples: Sequence[float], share: float) -> float:
    """Return the value that `share` (0 to 1) of the samples do not exceed: the nearest rank."""
    ordered = sorted(samples)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def spread(samples: Sequence[float]) -> dict[str, float]:
    """Return minimum, median, 99th percentile, maximum and count of some samples."""
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
    console = Console()
    # A file or a pipe has no width of its own.
    Console(width=console.width if console.is_terminal else 160).print(table)


def compared(samples: Mapping[str, Mapping[str, Sequence[float]]], base: str) -> Tables:
    """Return a table for each figure: every name's samples, and their ratios to `base`'s.

    The samples of one name are by figure, one a round. A ratio is taken within its round, so that a
    slowdown of the whole machine affects both sides of it.
    """
    tables: Tables = {}
    for name, figures in samples.items():
        for figure, values in figures.items():
            row = {"min": min(values), "median": median(values), "max": max(values)}
            if of_base := samples[base].get(figure):
                ratios = [value / other for value, other in zip(values, of_base, strict=True)]
                row |= {"ratio": median(ratios), "ratio min": min(ratios), "ratio max": max(ratios)}
            tables.setdefault(figure, {})[name] = row
    return tables


def keep(name: str, figures: Mapping[str, object], path: Path | None) -> None:
    """Write the figures to the file of ``--json``, if there is one.

    The file also holds the command that produced them and the machine's data.
    """
    if path is None:
        return
    words = iter(sys.argv[1:])
    # An option and its value are one word with "=", and two without.
    without = [w for w in words if not (w.startswith("--json=") or (w == "--json" and next(words)))]
    machine = {"cores": os.cpu_count(), "kernel": os.uname().release, "load": os.getloadavg()[0]}
    command = " ".join([".venv/bin/python", "-m", f"bench.{name}", *without])
    document = {name: figures, "command": command, "machine": machine}
    path.write_text(json.dumps(document, indent=1) + "\n")


def _cell(value: float | str) -> str:
    return value if isinstance(value, str) else f"{value:,.2f}"
