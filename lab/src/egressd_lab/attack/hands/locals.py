"""An unprivileged user on the router: egressd's ports, locks, sockets, files and processes."""

from __future__ import annotations

import fcntl
import os
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Final

from egressd_lab.attack.hands import BREACH

_NOBODY: Final = 65_534
_TIMEOUT_S: Final = 0.5
_PORTS_A_ROUND: Final = 20
_IDLE_MAX: Final = 600


def attack(
    rng: Random, *, folders: list[str], ports: list[int], token: str, pids: list[int]
) -> Iterator[str]:
    """Try everything that an unprivileged user can.

    `folders`: the data and run folders; `ports`: egressd's ports; `token`: the API's token, which
    must not be readable in any file.
    """
    os.setgroups([])
    os.setresgid(_NOBODY, _NOBODY, _NOBODY)
    os.setresuid(_NOBODY, _NOBODY, _NOBODY)
    idle: list[socket.socket] = []
    ways: dict[str, Callable[[], str]] = {
        "a port": lambda: _take_port(rng, ports),
        "a file": lambda: _use_file(rng, folders, token),
        "a socket": lambda: _call(rng, folders),
        "an abstract name": _take_names,
        "a process": lambda: _harm(rng, pids),
        "idle connections": lambda: _stay(rng, ports, idle),
    }
    while True:
        name = rng.choice(list(ways))
        yield ways[name]() or name


def _take_port(rng: Random, ports: list[int]) -> str:
    """Bind one of egressd's ports. This may happen at any moment, most likely at a restart."""
    for _ in range(_PORTS_A_ROUND):
        port, address = rng.choice(ports), rng.choice(["", "127.0.0.1", "::", "::1"])
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        with socket.socket(family, socket.SOCK_STREAM) as sock, suppress(OSError):
            if family == socket.AF_INET6:
                sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, rng.randrange(2))
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, rng.randrange(2))
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, rng.randrange(2))
            sock.bind((address, port))
            sock.listen()
            return f"{BREACH}took port {port} at {address or 'any address'}"
    return ""


def _use_file(rng: Random, folders: list[str], token: str) -> str:
    files: list[Path] = []
    for folder in folders:
        for where, _, names in os.walk(folder):
            files += [Path(where), *(Path(where, name) for name in names)]
    if not files:
        return ""
    file = rng.choice(files)
    with suppress(OSError):
        if file.is_file() and token.encode() in file.read_bytes():
            return f"{BREACH}read the token in {file.name}"
    for flags in (os.O_WRONLY, os.O_RDONLY):
        with suppress(OSError):
            descriptor = os.open(file, flags | os.O_NONBLOCK)
            try:
                if flags == os.O_WRONLY:
                    return f"{BREACH}opened {file.name} for writing"
                if file.suffix == ".lock":
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    return f"{BREACH}locked {file.name}"
            finally:
                os.close(descriptor)
    with suppress(OSError):
        (file if file.is_dir() else file.parent).joinpath(f"x{rng.random()}").touch()
        return f"{BREACH}made a file beside {file.name}"
    return ""


def _call(rng: Random, folders: list[str]) -> str:
    """Call a Unix socket. Every user may connect, but must get no answer."""
    sockets = [
        Path(where, name)
        for folder in folders
        for where, _, names in os.walk(folder)
        for name in names
        if name.endswith(".sock")
    ]
    for path in sockets:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock, suppress(OSError):
            sock.settimeout(_TIMEOUT_S)
            sock.connect(str(path))
            sock.sendall(rng.randbytes(rng.randrange(1, 300)))
            if sock.recv(100):
                return f"{BREACH}was answered at {path.name}"
    return ""


def _take_names() -> str:
    """Look for abstract socket names of egressd. Any user could take them, so there
    must be none.
    """
    for line in Path("/proc/net/unix").read_text().splitlines():
        if "@" in line and "egressd" in line:
            return f"{BREACH}there is an abstract name: {line.split()[-1]}"
    return ""


def _harm(rng: Random, pids: list[int]) -> str:
    pid = rng.choice(pids)
    with suppress(OSError):
        os.kill(pid, signal.SIGCONT)
        return f"{BREACH}signalled process {pid}"
    for name in ("environ", "mem", "maps"):
        with suppress(OSError), Path(f"/proc/{pid}/{name}").open("rb") as file:
            if file.read(1):
                return f"{BREACH}read {name} of process {pid}"
    return ""


def _stay(rng: Random, ports: list[int], idle: list[socket.socket]) -> str:
    for _ in range(_PORTS_A_ROUND):
        sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        sock.setblocking(False)
        with suppress(OSError):
            sock.bind((f"127.0.{rng.randrange(4)}.{rng.randrange(1, 255)}", 0))
        sock.connect_ex(("127.0.0.1", rng.choice(ports)))
        idle.append(sock)
    while len(idle) > _IDLE_MAX:
        idle.pop(0).close()
    return ""
