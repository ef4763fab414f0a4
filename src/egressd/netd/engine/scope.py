"""A control group of its own for each worker, if systemd runs netd.

The kernel ends a worker that exceeds its memory in its own group: it takes no memory from other
processes, and no other process is ended in its place. The group is a scope of systemd's
(systemd.scope(5)), and not one that netd makes below its unit's (``Delegate=``): systemd 252, which
Debian 12 has, cannot restart a unit while processes live in groups below it, and workers outlive
netd.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Final

import structlog
from jeepney import DBusAddress, HeaderFields, Message, Parser, new_method_call
from jeepney.auth import BEGIN, AuthenticationError, Authenticator
from jeepney.wrappers import DBusErrorResponse, unwrap_msg

log = structlog.get_logger()

_SOCKET: Final = Path("/run/systemd/private")
"""The socket on which systemd itself listens to root, also before there is a bus."""
_MANAGER: Final = DBusAddress(
    "/org/freedesktop/systemd1",
    bus_name="org.freedesktop.systemd1",
    interface="org.freedesktop.systemd1.Manager",
)
_PREFIX: Final = "egressd-"
_CALL_S: Final = 10.0
_SERIAL: Final = 1  # of the one message on a connection
_READ_BYTES: Final = 65_536


def is_managed() -> bool:
    """Return whether this process is a unit of systemd's (systemd.exec(5), ``INVOCATION_ID``)."""
    return "INVOCATION_ID" in os.environ and _SOCKET.is_socket()


async def isolate(pid: int, name: str, memory: int) -> None:
    """Give a worker its own group, with `memory` bytes at most, unless it has one or systemd does
    not run this process.

    A refusal by systemd is logged: the worker stays in netd's own group then.
    """
    if not is_managed() or _has_its_own(pid):
        return
    # The name has the process's number, since a group with the same name may be about to go.
    wanted = start_transient_unit(f"{_PREFIX}{name}-{pid}.scope", pid, memory)
    try:
        async with asyncio.timeout(_CALL_S):
            await call(_SOCKET, wanted)
    except (OSError, AuthenticationError, DBusErrorResponse) as error:  # TimeoutError is an OSError
        why = str(error) or "systemd does not answer"
        log.warning("engine worker has no cgroup of its own", worker=name, why=why)


def start_transient_unit(scope: str, pid: int, memory: int) -> Message:
    """Return the call of systemd's method of that name (org.freedesktop.systemd1(5))."""
    properties = [
        ("Description", ("s", "egressd: an engine worker")),
        ("MemoryMax", ("t", memory)),
        ("CollectMode", ("s", "inactive-or-failed")),
        ("PIDs", ("au", [pid])),
    ]
    body: tuple[object, ...] = (scope, "fail", properties, [])
    return new_method_call(_MANAGER, "StartTransientUnit", "ssa(sv)a(sa(sv))", body)


async def call(listener: Path, message: Message) -> None:
    """Send a method call to a program that speaks D-Bus at that socket without being a bus, and
    wait for its reply. Raises OSError, AuthenticationError, and DBusErrorResponse if the reply is
    an error.
    """
    reader, writer = await asyncio.open_unix_connection(listener)

    async def received() -> bytes:
        if not (data := await reader.read(_READ_BYTES)):
            raise ConnectionResetError("it hung up")
        return data

    try:
        authenticator = Authenticator()
        for line in authenticator:
            writer.write(line)
            authenticator.feed(await received())
        writer.write(BEGIN + message.serialise(serial=_SERIAL))
        parser = Parser()
        while True:
            for answer in parser.feed(await received()):
                if answer.header.fields.get(HeaderFields.reply_serial) == _SERIAL:
                    unwrap_msg(answer)
                    return
    finally:
        writer.close()


def _has_its_own(pid: int) -> bool:
    try:
        groups = Path(f"/proc/{pid}/cgroup").read_text()
    except OSError:
        return True  # it has ended
    names = (line.rpartition("/")[2] for line in groups.splitlines())
    return any(name.startswith(_PREFIX) and name.endswith(".scope") for name in names)
