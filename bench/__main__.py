"""Run benchmarks one after the other, keep their results, and draw the plots.

Each is a module of this folder, which ``python -m bench.NAME --help`` describes.
"""

from __future__ import annotations

import subprocess
import sys

from bench.arguments import Arguments
from bench.plots import RESULTS, ROOT, draw

SHOWN = ("forwarding", "turns", "nodes", "moves", "changes", "scale", "startup", "load", "api")


def main() -> None:
    """Run each benchmark in a process of its own; stop at the first that fails."""
    arguments = Arguments("", __doc__, keeps=False)
    shown = f"a module's name (default: those that docs/performance.md shows, {', '.join(SHOWN)})"
    arguments.add_argument("names", nargs="*", metavar="NAME", help=shown)
    names = arguments.read().names or list(SHOWN)
    if unknown := [name for name in names if not (ROOT / "bench" / f"{name}.py").exists()]:
        sys.exit(f"bench: there is no {', '.join(unknown)}")
    RESULTS.mkdir(exist_ok=True)
    for name in names:
        print(f"bench: {name}", file=sys.stderr)
        argv = [sys.executable, "-m", f"bench.{name}", "--json", str(RESULTS / f"{name}.json")]
        subprocess.run(argv, check=True, cwd=ROOT)
    for file in draw():
        print(f"bench: drew {file.relative_to(ROOT)}", file=sys.stderr)


if __name__ == "__main__":
    main()
