"""The command that runs a module of the store in a process of its own.

The interpreter is the one beneath the virtual environment, with this process's own module path: in
a service that root started, this is the part that its user can reach (`app.private_mounts`).
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

import egressd

ENVIRONMENT: Final = {"LC_ALL": "C.UTF-8"}
"""The whole environment of such a process."""

_INTERPRETER: Final = str(Path(sys.executable).resolve())
"""The interpreter's path, resolved while root's files can be read."""


def command(module: str) -> list[str]:
    """Return the command line that calls the function `main` of a module. The collector of garbage
    spares what modules make, as in the api and netd.
    """
    load = f"gc.disable(); from {module} import main; gc.freeze(); gc.enable()"
    return running(f"import gc; {load}; main()")


def running(code: str) -> list[str]:
    """Return the command line that runs some code."""
    paths = [str(Path(egressd.__file__).parents[1]), *filter(None, sys.path)]
    boot = f"import sys; sys.path[:] = sys.argv[1:]; {code}"
    return [_INTERPRETER, "-I", "-S", "-c", boot, *paths]
