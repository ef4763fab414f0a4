"""Messages to systemd: this process is ready, or has open files for systemd to keep
(sd_notify(3)).
"""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence


def announce() -> None:
    """Report that this process is ready, so that units ordered after it may start."""
    _say("READY=1")


def store(name: str, descriptors: Sequence[int]) -> None:
    """Have systemd keep copies of these open files, in place of those that it keeps by that name,
    and hand them to the process that it starts in this one's place.
    """
    forget(name)
    _say(f"FDSTORE=1\nFDNAME={name}", descriptors)


def forget(name: str) -> None:
    """Have systemd close the files that it keeps by that name."""
    _say(f"FDSTOREREMOVE=1\nFDNAME={name}")


def _say(text: str, descriptors: Sequence[int] = ()) -> None:
    """Send `text` to the service manager that started this process, if it takes such messages."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address:
        return
    if address.startswith("@"):  # Linux's abstract namespace
        address = "\0" + address[1:]
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sock:
        sock.connect(address)
        socket.send_fds(sock, [text.encode()], [*descriptors])
