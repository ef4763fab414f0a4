"""Run an ``egressd`` command by ``command_server.py``, in this process's namespaces.

    python -IS command_client.py SOCKET WORD…

It is to the process that starts it as the command itself would be: streams, SIGINT and the exit
status.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys

NAMESPACES = ("/proc/self/ns/net", "/proc/self/ns/mnt")


def run(path: str, words: list[str]) -> int:
    """Return the exit status of a command."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as server:
        server.connect(path)
        opened = [os.open(each, os.O_RDONLY) for each in NAMESPACES]
        socket.send_fds(server, [json.dumps(words).encode()], [0, 1, 2, *opened])
        signal.signal(signal.SIGINT, lambda number, _frame: server.send(bytes([number])))
        return int(server.recv(16))


if __name__ == "__main__":
    sys.exit(run(sys.argv[1], sys.argv[2:]))
