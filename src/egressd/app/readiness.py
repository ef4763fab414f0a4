"""Telling systemd what it wants to know, or is to keep (sd_notify(3))."""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence


def announce() -> None:
    """Say that this process is ready, so that what is ordered after it may start."""
    _say("READY=1")


def store(name: str, descriptors: Sequence[int]) -> None:
    """Have systemd keep copies of these open files, in place of what it keeps by that name, and
    hand them to whom it starts in this process's place.
    """
    forget(name)
    _say(f"FDSTORE=1\nFDNAME={name}", descriptors)


def forget(name: str) -> None:
    """Have systemd close what it keeps by that name."""
    _say(f"FDSTOREREMOVE=1\nFDNAME={name}")


def _say(text: str, descriptors: Sequence[int] = ()) -> None:
    """Say it to who started this process, if that wants to know."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address:
        return
    if address.startswith("@"):  # Linux's abstract namespace
        address = "\0" + address[1:]
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sock:
        sock.connect(address)
        socket.send_fds(sock, [text.encode()], [*descriptors])
