"""A control group of its own for each worker, where systemd runs netd.

A worker that takes more than it may is ended by the kernel in its own group: what it needs is taken
from no other, and no other is ended in its place. The group is a scope of systemd's
(systemd.scope(5)), and not one that netd makes below its unit's (``Delegate=``): systemd 252, which
Debian 12 has, cannot start a unit anew while processes live in groups below it, and workers outlive
netd.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Final

import structlog

from egressd.netd import dbus
from egressd.netd.dbus import Body

log = structlog.get_logger()

_MANAGER: Final = Path("/run/systemd/private")
"""Where systemd itself listens to root, also before there is a bus."""
_NAME: Final = "org.freedesktop.systemd1"
_PATH: Final = "/org/freedesktop/systemd1"
_PREFIX: Final = "egressd-"
_CALL_S: Final = 10.0


def is_managed() -> bool:
    """Whether this process is a unit of systemd's (systemd.exec(5), ``INVOCATION_ID``)."""
    return "INVOCATION_ID" in os.environ and _MANAGER.is_socket()


async def isolate(pid: int, name: str, memory: int) -> None:
    """Give a worker its own group, with `memory` bytes at most, unless it has one or systemd does
    not run this process.

    What systemd refuses is logged: the worker stays in netd's own group then.
    """
    if not is_managed() or _has_its_own(pid):
        return
    # With the process's number, since one of the same name may be about to go.
    body = start_transient_unit(f"{_PREFIX}{name}-{pid}.scope", pid, memory)
    call = dbus.method_call(_PATH, f"{_NAME}.Manager", "StartTransientUnit", _NAME, body)
    try:
        async with asyncio.timeout(_CALL_S):
            await dbus.call(_MANAGER, call)
    except (OSError, dbus.Refused) as error:  # TimeoutError is an OSError
        why = str(error) or "systemd does not answer"
        log.warning("an engine worker has no control group of its own", worker=name, why=why)


def start_transient_unit(scope: str, pid: int, memory: int) -> Body:
    """What systemd's method of that name takes (org.freedesktop.systemd1(5))."""
    properties = Body()
    for key, kind, value in (
        ("Description", "s", "egressd: an engine worker"),
        ("MemoryMax", "t", memory),
        ("CollectMode", "s", "inactive-or-failed"),
    ):
        properties.align("(")
        properties.put("s", key)
        properties.put_variant(kind, value)
    properties.align("(")
    properties.put("s", "PIDs")
    properties.put("g", "au")
    pids = Body()
    pids.put("u", pid)
    properties.put_array("u", pids)
    body = Body()
    body.signature = "ssa(sv)a(sa(sv))"
    body.put("s", scope)
    body.put("s", "fail")
    body.put_array("(", properties)
    body.put_array("(", Body())
    return body


def _has_its_own(pid: int) -> bool:
    try:
        groups = Path(f"/proc/{pid}/cgroup").read_text()
    except OSError:
        return True  # it has ended
    names = (line.rpartition("/")[2] for line in groups.splitlines())
    return any(name.startswith(_PREFIX) and name.endswith(".scope") for name in names)
