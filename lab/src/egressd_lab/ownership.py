"""A lab's owner, which distinguishes an abandoned lab from one that a process is using.

The owner's id and start time are in ``lab.json`` of the lab's folder. Nothing else is stored there:
a lab's parts are found from its namespaces.
"""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from egressd_lab import netns


class Owner(msgspec.Struct, frozen=True, kw_only=True):
    """The process that built a lab; `detached` if the lab shall outlive it."""

    pid: int
    started: str
    detached: bool


def note(lab: str, *, detached: bool) -> None:
    """Record that this process owns the lab."""
    owner = Owner(pid=os.getpid(), started=process_start(os.getpid()), detached=detached)
    _file(lab).write_bytes(msgspec.json.encode(owner))


def in_use(lab: str) -> bool:
    """True if the process that built a lab is still using it."""
    owner = _owner(lab)
    return owner is not None and not owner.detached and process_start(owner.pid) == owner.started


def abandoned() -> list[str]:
    """Return the names of labs whose owner ended without removing or detaching them."""
    return [lab for lab in netns.labs() if not in_use(lab) and not _is_detached(lab)]


def remove_abandoned() -> None:
    """Remove the abandoned labs."""
    for name in abandoned():
        netns.remove_lab(name)


def process_start(pid: int) -> str:
    """Return a process's start time, in clock ticks since boot (proc(5), stat); empty if it is
    gone.
    """
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return ""
    return stat.rpartition(")")[2].split()[19]


def _is_detached(lab: str) -> bool:
    owner = _owner(lab)
    return owner is not None and owner.detached


def _owner(lab: str) -> Owner | None:
    try:
        return msgspec.json.decode(_file(lab).read_bytes(), type=Owner)
    except (OSError, msgspec.DecodeError):
        return None


def _file(lab: str) -> Path:
    return netns.RUN_DIR / lab / "lab.json"
