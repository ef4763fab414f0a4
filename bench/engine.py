"""A peer's engine as a process of its own, which `bench.peers` starts.

Both come as Python modules, which run the same code as their own commands. A ``CONFIG.started``
appears once the engine listens.

SIGHUP makes sing-box stop and start with the file's present content, as its own command does.
Xray's has no such signal: its documentation restarts the service. With ``--hold`` it waits, fully
loaded, for SIGUSR1, so that the measurement of such a restart does not include the start of Python.
"""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from pathlib import Path

from bench.arguments import Arguments
from egressd_lab.engine import started_file

_ENDING = {signal.SIGTERM, signal.SIGINT}


def held_file(config: Path) -> Path:
    """Return the file that exists while a process with ``--hold`` waits."""
    return config.with_suffix(".held")


def main() -> None:
    """Run until SIGTERM or SIGINT."""
    arguments = Arguments("engine", __doc__, keeps=False)
    arguments.add_argument("kind", choices=["sing-box", "xray"], help="the engine")
    arguments.add_argument("config", type=Path, metavar="CONFIG", help="its configuration, JSON")
    arguments.add_argument("--hold", action="store_true", help="wait for SIGUSR1; of Xray only")
    given = arguments.read()
    signal.pthread_sigmask(signal.SIG_BLOCK, _ENDING | {signal.SIGHUP, signal.SIGUSR1})
    if given.kind == "sing-box":
        _sing_box(given.config)
    else:
        _xray(given.config, hold=given.hold)


def _sing_box(path: Path) -> None:
    import singbox

    while True:
        engine = singbox.SingBox()
        engine.startFromJSON(path.read_text())
        started_file(path).touch()
        if signal.sigwait(_ENDING | {signal.SIGHUP}) != signal.SIGHUP:
            return
        engine.stop()


def _xray(path: Path, *, hold: bool) -> None:
    import xray  # type: ignore[import-not-found, import-untyped, unused-ignore]

    if hold:
        held_file(path).touch()
        signal.sigwait({signal.SIGUSR1})
    # It serves inside this call, which never returns.
    threading.Thread(target=xray.startFromJSON, args=[path.read_text()], daemon=True).start()
    while not _listens(json.loads(path.read_text())["inbounds"][0]["port"]):
        time.sleep(0.001)
    started_file(path).touch()
    signal.sigwait(_ENDING)
    os._exit(0)


def _listens(port: int) -> bool:
    """True if a TCP socket of this namespace listens on the port (proc_net(5))."""
    wanted = f":{port:04X} "
    rows = [
        row
        for name in ("tcp", "tcp6")
        for row in Path(f"/proc/net/{name}").read_text().splitlines()
    ]
    return any(wanted in row and " 0A " in row for row in rows)


if __name__ == "__main__":
    main()
