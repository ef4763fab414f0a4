"""Small programs that run in namespaces: clients and servers, each with one odd habit."""

from __future__ import annotations

import sys


def argv_of(program: str, *arguments: str) -> list[str]:
    """Return the command that runs a program of this package."""
    return [sys.executable, "-m", f"{__name__}.{program}", *arguments]
