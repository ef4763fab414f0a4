"""``egressd`` commands, each in a process forked from this one, which has read their modules.

    python -m tests.store.command_server SOCKET

A short command takes most of its time to read its modules. ``command_client.py`` hands a command
over a connection: its words as JSON, its standard streams, and the namespaces that it runs in. Each
byte that follows is a signal for it, and the answer is its exit status. If the connection ends
before, the command is killed. The server ends with its standard input.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import select
import signal
import socket
import sys
from importlib import import_module
from pathlib import Path

from egressd.cli import main

READ = (
    "egressd.app.cluster_section",
    "egressd.app.inviting",
    "egressd.app.joining",
    "egressd.app.key_rotation",
    "egressd.app.leaving",
    "egressd.app.local_postgres",
    "egressd.app.site_status",
    "egressd.cli.cluster",
    "egressd.store.postgres.invitations",
    "egressd.store.postgres.schema",
    "egressd.store.postgres.site_store",
)
"""The modules that ``egressd cluster`` imports when it needs them."""
STREAMS = 3
NAMESPACES = 2
"""Descriptors that a command is given: its standard streams, and its namespaces."""
_WORDS_MAX = 1 << 20
_LIBC = ctypes.CDLL(None, use_errno=True)


def serve(path: str) -> None:
    """Take commands at a socket until the standard input ends. Returns in each of them, too."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(path)
        listener.listen(16)
        print("serving", flush=True)
        keepers: list[int] = []
        while sys.stdin.fileno() not in select.select([listener, sys.stdin.fileno()], [], [])[0]:
            connection, _ = listener.accept()
            if (pid := os.fork()) == 0:
                keep(connection)
                return
            connection.close()
            keepers = [pid, *(each for each in keepers if not os.waitpid(each, os.WNOHANG)[0])]
    for pid in keepers:
        os.waitpid(pid, 0)


def keep(connection: socket.socket) -> None:
    """Keep the command of a connection until it ends. Returns in the command's own process."""
    words, descriptors, _, _ = socket.recv_fds(connection, _WORDS_MAX, STREAMS + NAMESPACES)
    pid = os.fork()
    if pid == 0:
        connection.close()
        become(json.loads(words), descriptors)
        return
    for descriptor in descriptors:
        os.close(descriptor)
    ended = os.pidfd_open(pid)
    while ended not in select.select([ended, connection.fileno()], [], [])[0]:
        for number in connection.recv(1) or (signal.SIGKILL,):
            os.kill(pid, number)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    connection.send(str(status).encode())
    os._exit(0)


def become(words: list[str], descriptors: list[int]) -> None:
    """Run a command in this process."""
    for stream, descriptor in enumerate(descriptors[:STREAMS]):
        os.dup2(descriptor, stream)
    folder = Path.cwd()
    for namespace in descriptors[STREAMS:]:
        if _LIBC.setns(namespace, 0):
            raise OSError(ctypes.get_errno(), "setns")
    os.chdir(folder)  # another mount namespace begins at its root
    for descriptor in descriptors:
        os.close(descriptor)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.argv = ["egressd", *words]
    main()


if __name__ == "__main__":
    for module in READ:
        import_module(module)
    gc.freeze()
    serve(sys.argv[1])
