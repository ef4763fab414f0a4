"""``python -m egressd.app netd|api [--config FILE]``: one of the two processes, by itself."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path


def main(arguments: list[str]) -> None:
    """Run the process that `arguments` name."""
    match arguments:
        case ["netd" | "api" as name]:
            path = None
        case ["netd" | "api" as name, "--config", file]:
            path = Path(file)
        case _:
            sys.exit(__doc__)
    # Only what the process needs is loaded: neither has use for the other's libraries.
    import_module(f"egressd.app.{name}_process").main(path)


main(sys.argv[1:])
