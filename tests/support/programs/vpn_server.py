"""A VPN server that lets each account in once: a program for a namespace.

``ADDRESS PORT`` listens there. A caller sends ``USER PASSWORD`` and then a line from time to time;
it is answered with ``yes`` or with a reason. A session lasts until the caller hangs up or is silent
for `SILENT_S`. Each ``begin``, ``refused`` and ``end`` is printed, with the caller's address and
the time in seconds of CLOCK_MONOTONIC.
"""

from __future__ import annotations

import socket
import sys
import threading
import time

SILENT_S = 3.0
REFUSAL = "Access denied"

_sessions: set[str] = set()
_lock = threading.Lock()


def _print(what: str, caller: str) -> None:
    print(what, caller, time.monotonic(), flush=True)


def _serve(call: socket.socket, caller: str) -> None:
    call.settimeout(SILENT_S)
    with call, call.makefile("r") as said:
        try:
            account = said.readline()
        except OSError:
            return
        with _lock:
            if account in _sessions:
                _print("refused", caller)
                call.sendall(f"{REFUSAL}\n".encode())
                return
            _sessions.add(account)
            _print("begin", caller)
        try:
            call.sendall(b"yes\n")
            while said.readline():
                pass
        except OSError:
            pass
        with _lock:
            _sessions.remove(account)
            _print("end", caller)


def main(address: str, port: int) -> None:
    """Serve until the process is killed."""
    with socket.create_server((address, port)) as listening:
        while True:
            call, (caller, _) = listening.accept()
            threading.Thread(target=_serve, args=(call, caller), daemon=True).start()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
