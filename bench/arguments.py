"""The command line of a benchmark: ``--help`` prints its module's docstring and its options."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from pathlib import Path


class Arguments(argparse.ArgumentParser):
    """The arguments of ``python -m bench.NAME``, with ``--json FILE`` for `bench.figures.keep`."""

    def __init__(self, name: str, docstring: str | None, *, keeps: bool = True) -> None:
        super().__init__(
            prog=f"python -m bench.{name}" if name else "python -m bench",
            description=docstring,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        if keeps:
            self.add_argument("--json", type=Path, metavar="FILE", help="keep the figures in FILE")

    def number(self, option: str, default: float, text: str) -> None:
        """Add an option that takes a number of the default's type."""
        shown = f"{text} (default: {default:g})"
        self.add_argument(option, type=type(default), default=default, metavar="N", help=shown)

    def parts(self, names: Iterable[str]) -> None:
        """Add the names of the parts to measure, `parts`."""
        known = list(names)

        # Python 3.11 would hold an empty list against `choices`.
        def part(text: str) -> str:
            if text not in known:
                raise argparse.ArgumentTypeError(f"there is no {text}")
            return text

        shown = f"the parts to measure, of {', '.join(known)} (default: all)"
        self.add_argument("parts", nargs="*", type=part, metavar="PART", help=shown)

    def read(self) -> argparse.Namespace:
        """Return the arguments of this process. ``--help`` and an unknown argument end it."""
        return self.parse_intermixed_args()
