"""Telling systemd that a process is ready, so that what is ordered after it may start."""

from __future__ import annotations

import os
import socket


def announce() -> None:
    """Say ``READY=1`` to who started this process, if it wants to know (sd_notify(3))."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address:
        return
    if address.startswith("@"):  # Linux's abstract namespace
        address = "\0" + address[1:]
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sock:
        sock.connect(address)
        sock.sendall(b"READY=1")
