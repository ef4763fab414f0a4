"""The fork server: forks the processes in the namespaces, so that Python and its libraries are
loaded once for all of them.

Its standard input is a socket with frames of `egressd_lab.wire`. A request is ``[namespace, path of
the new process's socket, path of its log]``; the answer is a sentence with what failed, or empty
and comes with a descriptor of the new process (pidfd_open(2)). The server ends when the other side
closes its socket, and the processes that it has forked go on.
"""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import traceback
from typing import Final

from egressd_lab import wire
from egressd_lab.inside.service import serve
from egressd_lab.netns import NETNS_DIR

_CLONE_NEWNET: Final = 0x40000000  # sched.h
_LIBC: Final = ctypes.CDLL(None, use_errno=True)


def main(requests: socket.socket) -> None:
    """Fork a process for each request, until there is no other side any more."""
    # The kernel reaps processes that have ended (wait(2), NOTES).
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while (request := wire.receive(requests)) is not None:
        namespace, path, log = request[0]
        try:
            process = _fork(namespace, path, log)
        except OSError as error:
            wire.send(requests, str(error))
            continue
        wire.send(requests, "", (process,))
        os.close(process)


def _fork(namespace: str, path: str, log: str) -> int:
    """Fork a process that serves in a namespace, and return a descriptor of it."""
    network = os.open(NETNS_DIR / namespace, os.O_RDONLY)
    output = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        pid = os.fork()
        if not pid:
            _become(network, path, output)
        return os.pidfd_open(pid)
    finally:
        os.close(network)
        os.close(output)


def _become(network: int, path: str, output: int) -> None:
    """Serve in the new process, and end it."""
    try:
        os.setsid()  # what a terminal sends is for the process that builds the lab
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(output, 1)
        os.dup2(output, 2)
        _enter(network)
        serve(path)
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(1)


def _enter(network: int) -> None:
    if _LIBC.setns(network, _CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), "setns")
    os.close(network)


if __name__ == "__main__":
    main(socket.socket(fileno=0))
