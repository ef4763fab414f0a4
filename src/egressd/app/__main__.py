"""``python -m egressd.app netd|api [--config FILE]``: one of the two processes, by itself."""

from __future__ import annotations

import sys
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
    if name == "netd":
        from egressd.app import netd_process

        netd_process.main(path)
    else:
        from egressd.app import api_process

        api_process.main(path)


main(sys.argv[1:])
