"""``python -m egressd.app netd|api [--config FILE] [--kept]``: one of the two processes, by itself.

``python -m egressd.app block`` blocks every client in place of a netd that cannot, ``backup
[--config FILE]`` makes the timed backup if one is due, and ``endpoints [--config FILE]`` prints the
places that the api listens at.

With ``--kept`` it ends when its standard input does: when its supervisor, `supervise`, is gone.
"""

from __future__ import annotations

import gc
import signal
import sys
from importlib import import_module
from pathlib import Path


def main(arguments: list[str]) -> None:
    """Run the process that `arguments` name."""
    from egressd.app.signals import ENDINGS

    # A netd that is stopped while it starts has clients to block: the signals wait until it can.
    how = signal.SIG_BLOCK if "netd" in arguments else signal.SIG_UNBLOCK
    signal.pthread_sigmask(how, ENDINGS)
    # A closing terminal sends SIGHUP to all of its processes: the supervisor decides for its
    # children.
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    from egressd.app import lean
    from egressd.app.supervise import KEPT

    match [argument for argument in arguments if argument != KEPT]:
        case ["netd" | "api" | "block" | "backup" | "endpoints" as name]:
            path = None
        case ["netd" | "api" | "backup" | "endpoints" as name, "--config", file]:
            path = Path(file)
        case _:
            sys.exit(__doc__)
    # Load only the libraries that this process needs. Hardly any of what modules make is garbage:
    # the collector would look at it again and again, for a fifth of the CPU time of an api's start.
    gc.disable()
    lean.keep_out(name)
    process = import_module(f"egressd.app.{name}_process")
    gc.freeze()
    gc.enable()
    process.main(path)


main(sys.argv[1:])
