"""Namespaces inside the VM: made by ``ip``, and sockets opened in them."""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")

_CLONE_NEWNET = 0x4000_0000
_LIBC = ctypes.CDLL(None, use_errno=True)


def sh(script: str) -> str:
    """Run shell commands up to the first that fails, and return their output."""
    done = subprocess.run(["sh", "-ec", script], check=False, capture_output=True, text=True)
    if done.returncode:
        raise AssertionError(f"{script!r} ended with {done.returncode}: {done.stderr.strip()}")
    return done.stdout


def inside(namespace: str, call: Callable[[], T]) -> T:
    """Return the result of `call` in the namespace. Sockets that it opens stay there."""

    def work() -> T:
        descriptor = os.open(f"/run/netns/{namespace}", os.O_RDONLY)
        if _LIBC.setns(descriptor, _CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), "setns")
        os.close(descriptor)
        return call()

    # A thread has a network namespace of its own, and ends here.
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(work).result()


def udp(namespace: str, address: str, port: int = 0) -> socket.socket:
    """Return a UDP socket of the namespace, bound and non-blocking."""
    opened = inside(namespace, lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
    opened.bind((address, port))
    opened.setblocking(False)
    return opened


def tcp(namespace: str) -> socket.socket:
    """Return a TCP socket of the namespace, non-blocking."""
    opened = inside(namespace, lambda: socket.socket(socket.AF_INET, socket.SOCK_STREAM))
    opened.setblocking(False)
    return opened


def raw(namespace: str, interface: str) -> socket.socket:
    """Return a non-blocking socket that gets every frame of an interface."""
    every = socket.htons(3)  # ETH_P_ALL
    opened = inside(namespace, lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW, every))
    opened.setsockopt(socket.SOL_SOCKET, 33, 1 << 22)  # SO_RCVBUFFORCE
    opened.bind((interface, 0))
    opened.setblocking(False)
    return opened


def kill_processes(namespace: str) -> None:
    """Send SIGKILL to every process in the namespace."""
    wanted = Path(f"/run/netns/{namespace}").stat().st_ino
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            link = (entry / "ns" / "net").readlink().name
            if int(link[5:-1]) == wanted:
                os.kill(int(entry.name), signal.SIGKILL)
        except (OSError, ValueError):
            continue
