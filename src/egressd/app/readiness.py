"""Messages to systemd: this process is ready, alive or stopping, or has open files for systemd to
keep (sd_notify(3)).
"""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence


def announce(status: str) -> None:
    """Report that this process is ready, so that units ordered after it may start. ``systemctl
    status`` shows `status`.
    """
    _say(f"READY=1\nSTATUS={status}")


def describe(status: str) -> None:
    """Have ``systemctl status`` show another line."""
    _say(f"STATUS={status}")


def stopping(status: str) -> None:
    """Report that this process ends, with a line as in `describe`."""
    _say(f"STOPPING=1\nSTATUS={status}")


def alive() -> None:
    """Report to systemd's watchdog that this process is not hung."""
    _say("WATCHDOG=1")


def watchdog_s() -> float | None:
    """Return the seconds within which systemd wants `alive`, or None (sd_watchdog_enabled(3))."""
    own = os.environ.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
    wanted = int(os.environ.get("WATCHDOG_USEC", "0"))
    return wanted / 1e6 if own and wanted > 0 else None


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
