"""The process in a namespace: listens on a Unix socket, with a thread for each caller."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from egressd_lab import wire
from egressd_lab.inside import probes
from egressd_lab.inside.connections import Kept
from egressd_lab.inside.floods import Floods
from egressd_lab.inside.ring import Ring
from egressd_lab.inside.sockets import Deadline, connect_tcp

Operations = dict[str, Callable[..., Any]]


def operations() -> Operations:
    """Return all operations that a caller can request, by name."""
    kept = Kept()
    floods = Floods()
    table: Operations = {
        "http": probes.http_request,
        "tcp_echo": probes.tcp_echo,
        "udp_echo": probes.udp_echo,
        "dns": probes.dns,
        "ping": probes.ping,
        "raw": probes.raw,
        "emit": probes.emit,
        "every_way": probes.every_way,
        "connect": kept.connect,
        "exchange": kept.exchange,
        "state": kept.state,
        "disconnect": kept.disconnect,
        "download": kept.download,
        "progress": kept.progress,
        "stop_download": kept.stop_download,
        "flood": floods.start,
        "flood_report": floods.report,
        "stop_flood": floods.stop,
        "sysctl": write_sysctl,
    }

    def capture(interface: str, keep: bool) -> None:
        """Begin this process's one capture."""
        ring = Ring(interface, keep)
        table.update(captured=ring.snapshot, clear_capture=ring.clear, inject=ring.inject)

    table["capture"] = capture
    return table


def write_sysctl(name: str, value: str) -> None:
    """Set one of this namespace's kernel parameters; its name is written with slashes."""
    Path("/proc/sys", name).write_text(value)


def serve(path: str) -> None:
    """Answer on `path` until the process is ended."""
    table = operations()
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(path)
        listener.listen(256)
        while True:
            caller, _ = listener.accept()
            threading.Thread(target=answer, args=(caller, table), daemon=True).start()


def answer(caller: socket.socket, table: Operations) -> None:
    """Answer one caller's requests, in order, until it closes."""
    with caller:
        try:
            while (asked := wire.receive(caller)) is not None:
                (operation, arguments), _ = asked
                if operation == "socket":
                    _give_socket(caller, **arguments)
                    continue
                try:
                    reply = ["", table[operation](**arguments)]
                except Exception as error:
                    reply = [f"{type(error).__name__}: {error}", None]
                wire.send(caller, reply)
        except ConnectionError:
            return  # the caller ended in the middle


def _give_socket(caller: socket.socket, address: str, port: int, timeout: float) -> None:
    """Send a TCP socket of this namespace to the caller, connected if `address` is not empty."""
    try:
        if address:
            sock = connect_tcp(address, port, "", Deadline(timeout))
        else:
            sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    except OSError as error:
        wire.send(caller, [f"{type(error).__name__}: {error}", None])
        return
    with sock:
        wire.send(caller, ["", None], (sock.fileno(),))
