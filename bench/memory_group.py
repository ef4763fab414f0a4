"""A control group with little memory, for programs that are started in it (cgroups(7))."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

_HIERARCHY: Final = Path("/sys/fs/cgroup")


class MemoryGroup:
    """A group whose processes hold `limit` bytes together, page cache included, and no swap.

    It works with both versions of the hierarchy, and is made by `limited`.
    """

    def __init__(self, limit: int) -> None:
        self._is_old = (_HIERARCHY / "memory").is_dir()
        self._root = _HIERARCHY / "memory" if self._is_old else _HIERARCHY
        self._group = self._root / f"egressd-bench-{os.getpid()}"
        self._group.mkdir()
        if self._is_old:
            self._write("memory.limit_in_bytes", str(limit))
            self._write("memory.memsw.limit_in_bytes", str(limit))
        else:
            self._write("memory.max", str(limit))
            self._write("memory.swap.max", "0")

    @contextmanager
    def entered(self) -> Iterator[None]:
        """Have this process in the group; processes that it starts meanwhile stay there."""
        before = self._own_group()
        self._write("cgroup.procs", str(os.getpid()))
        try:
            yield
        finally:
            (before / "cgroup.procs").write_text(str(os.getpid()))

    def pids(self) -> set[int]:
        """Return the processes in the group."""
        return {int(pid) for pid in (self._group / "cgroup.procs").read_text().split()}

    def kills(self) -> int:
        """Return the number of processes that the kernel ended for want of memory."""
        name = "memory.oom_control" if self._is_old else "memory.events"
        found = re.search(r"^oom_kill (\d+)$", (self._group / name).read_text(), re.MULTILINE)
        assert found is not None
        return int(found[1])

    def peak(self) -> int:
        """Return the most bytes that were in use at once, page cache included."""
        name = "memory.max_usage_in_bytes" if self._is_old else "memory.peak"
        return int((self._group / name).read_text())

    def remove(self) -> None:
        """Move the processes that are left out of the group, and remove it."""
        for pid in self.pids():
            (self._root / "cgroup.procs").write_text(str(pid))
        self._group.rmdir()

    def _own_group(self) -> Path:
        for line in Path("/proc/self/cgroup").read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            if controllers == ("memory" if self._is_old else ""):
                return self._root / path.lstrip("/")
        raise FileNotFoundError("this process is in no control group for memory")

    def _write(self, name: str, text: str) -> None:
        (self._group / name).write_text(text)


@contextmanager
def limited(limit: int) -> Iterator[MemoryGroup]:
    """Make a group for programs that may hold `limit` bytes, and remove it afterwards."""
    group = MemoryGroup(limit)
    try:
        yield group
    finally:
        group.remove()
