"""Parts of libraries that a process does not use: they are not loaded, or not made before they are
needed.
"""

from __future__ import annotations

import sys


def keep_out(process: str) -> None:
    """Prepare the imports of the process of that name; to be called before them."""
    # structlog would load rich if it is installed: 5 MB and 50 ms for tracebacks on a terminal. It
    # and SQLAlchemy would load greenlet, whose threads no process has.
    unused = ["rich", "greenlet"]
    # asyncio would load ssl, which netd does not use: trial workers and the api do. msgspec prefers
    # typing_extensions to the same in typing: 0.4 MB.
    if process == "netd":
        unused += ["ssl", "typing_extensions"]
    for name in unused:
        sys.modules[name] = None  # type: ignore[assignment]
    if process == "api":
        from egressd.api import lean

        lean.prepare()
