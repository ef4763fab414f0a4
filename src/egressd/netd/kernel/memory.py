"""The machine's memory, and the memory that processes hold."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

_PAGE = os.sysconf("SC_PAGE_SIZE")
_GROUPS_OF_THIS: Final = Path("/proc/self/cgroup")
_HIERARCHY: Final = Path("/sys/fs/cgroup")


def available(groups: Path = _GROUPS_OF_THIS, hierarchy: Path = _HIERARCHY) -> int:
    """Return the bytes of memory that this process and its children may take in all: the machine's
    memory, or the limit of a control group above it if that is less (cgroups(7), both versions).
    """
    physical = os.sysconf("SC_PHYS_PAGES") * _PAGE
    return min([physical, *_allowed(groups, hierarchy)])


def _allowed(groups: Path, hierarchy: Path) -> Iterator[int]:
    """Yield the limit of each control group from the process's own upwards."""
    with suppress(OSError):
        for line in groups.read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            if controllers not in ("", "memory"):
                continue
            root, name = hierarchy, "memory.max"
            if controllers:
                root, name = hierarchy / "memory", "memory.limit_in_bytes"
            group = root / path.lstrip("/")
            for folder in (group, *group.parents):
                # "max" is no limit; a container may not show the groups above its own.
                with suppress(OSError, ValueError):
                    yield int((folder / name).read_text())
                if folder == root:
                    break


def resident(pids: Iterable[int]) -> int:
    """Return the bytes of memory that the processes hold together; ended processes hold none.

    Pages shared by several of them count once (``Pss``, proc_pid_smaps(5)); a process whose details
    may not be read counts with its resident size.
    """
    return sum(_resident(Path("/proc") / str(pid)) for pid in pids)


def _resident(process: Path) -> int:
    try:
        for line in (process / "smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    try:
        return int((process / "statm").read_text().split()[1]) * _PAGE
    except OSError:
        return 0
