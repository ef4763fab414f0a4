"""The gate against regressions: this commit beside the last release, in turns.

The release's tag (or ``--against COMMIT``) is checked out beside this checkout and set up by its
own script/setup; `bench.commits` then measures both in turns. A figure is *within noise of before*
if the median of its rounds' ratios is 0.97 or better, or 1.03 or less where less is better. Ends
with 1 if a figure is not, and names it.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

from bench import commits
from bench.arguments import Arguments
from bench.commits import AFTER, KINDS, ROUNDS, SECONDS
from bench.figures import Tables, keep, show
from bench.plots import ROOT

_LEAST, _MOST = 0.97, 1.03
_MORE_IS_BETTER = ("bit/s)", "(1/s)")
"""Ends of the names of figures of which more is better. All others are times."""


def last_tag() -> str:
    """Return the last release's tag. Ends the process if there is none."""
    argv = ["git", "-C", str(ROOT), "describe", "--tags", "--abbrev=0"]
    done = subprocess.run(argv, capture_output=True, check=False, text=True)
    if done.returncode:
        sys.exit("regression: no release has a tag: name a commit by --against")
    return done.stdout.strip()


def check_out(commit: str, folder: Path) -> None:
    """Set a commit up in an empty folder."""
    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(folder)], check=True)
    subprocess.run(["git", "-C", str(folder), "checkout", "--quiet", commit], check=True)
    subprocess.run([folder / "script/setup"], check=True, cwd=folder)


def is_worse(figure: str, ratio: float) -> bool:
    """Return whether a figure's ratio to before shows a regression."""
    return ratio < _LEAST if figure.endswith(_MORE_IS_BETTER) else ratio > _MOST


def judged(tables: Tables) -> Iterator[tuple[str, Mapping[str, float | str]]]:
    """Yield each figure with its ratio's spread, and the verdict."""
    for figure, rows in tables.items():
        row = rows[AFTER]
        spread = {name: row[name] for name in ("ratio", "ratio min", "ratio max")}
        yield figure, {**spread, "verdict": "worse" if is_worse(figure, row["ratio"]) else ""}


def main() -> None:
    """Measure, show each figure's verdict, and end with 1 if one is worse."""
    arguments = Arguments("regression", __doc__)
    arguments.add_argument("--against", metavar="COMMIT", help="compare with this commit")
    arguments.parts(KINDS)
    arguments.number("--rounds", ROUNDS, "rounds of each comparison")
    arguments.number("--seconds", SECONDS, "seconds of each transfer")
    given = arguments.read()
    commit = given.against or last_tag()
    with TemporaryDirectory(prefix="egressd-regression-") as folder:
        given.checkout = Path(folder) / "before"
        check_out(commit, given.checkout)
        tables: Tables = {}
        for kind in given.parts or KINDS:
            tables |= commits.KINDS[kind](given)
    verdicts = dict(judged(tables))
    show(f"this commit against {commit}", verdicts)
    keep("regression", {"against": commit, "figures": tables}, given.json)
    if worse := [figure for figure, row in verdicts.items() if row["verdict"]]:
        sys.exit(f"regression: {', '.join(worse)}")


if __name__ == "__main__":
    main()
