"""Directories of an unprivileged process beneath directories that only root may enter.

The program may lie under ``/root`` or another directory of mode 0700, and so may its data.
Loosening the mode of a directory that is not egressd's is no option, and neither is a capability
that bypasses the mode. So the process gets a mount namespace of its own, in which an empty
directory covers the first closed one, and the wanted directories are bound beneath it at their
usual paths.
"""

from __future__ import annotations

import ctypes
import os
import stat
import sys
import sysconfig
from collections.abc import Iterable
from pathlib import Path

import egressd
from egressd.model.errors import Failed

# Flags of unshare(2) and mount(2).
_CLONE_NEWNS = 0x0002_0000
_MS_NOSUID, _MS_NODEV = 2, 4
_MS_BIND, _MS_REC, _MS_PRIVATE = 4096, 16384, 1 << 18


def program_directories() -> list[Path]:
    """Return the directories of Python itself and of the modules that it loads, including modules
    that are loaded when first needed.
    """
    installed = sysconfig.get_paths()
    libraries = [installed[kind] for kind in ("stdlib", "platstdlib", "purelib", "platlib")]
    interpreter = Path(sys.executable).resolve()
    return [Path(egressd.__file__).parent, interpreter.parent, *map(Path, libraries)]


def make_reachable(directories: Iterable[Path], uid: int, gid: int) -> None:
    """Let `uid` and `gid` enter `directories`, which exist, from this process on.

    Needs root; does nothing if the path is open already. Raises Failed.
    """
    closed: dict[Path, list[Path]] = {}
    for directory in {path.resolve() for path in directories}:
        barrier = first_closed(directory, uid, gid)
        if barrier is not None:
            closed.setdefault(barrier, []).append(directory)
    if not closed:
        return
    _own_mounts()
    # Opened before they are covered, and in the new namespace: a mount of another one can't be
    # bound.
    handles = {d: os.open(d, os.O_PATH | os.O_DIRECTORY) for ds in closed.values() for d in ds}
    try:
        for barrier, wanted in closed.items():
            _mount("tmpfs", barrier, "tmpfs", _MS_NOSUID | _MS_NODEV, "mode=0755,size=64k")
            for directory in wanted:
                directory.mkdir(parents=True, exist_ok=True)
                _mount(f"/proc/self/fd/{handles[directory]}", directory, "", _MS_BIND, "")
    finally:
        for handle in handles.values():
            os.close(handle)


def first_closed(directory: Path, uid: int, gid: int) -> Path | None:
    """Return the outermost directory above `directory` that the user may not enter, or None."""
    for ancestor in reversed(directory.parents):
        status = ancestor.stat()
        if status.st_uid == uid:
            allowed = stat.S_IXUSR
        elif status.st_gid == gid:
            allowed = stat.S_IXGRP
        else:
            allowed = stat.S_IXOTH
        if not status.st_mode & allowed:
            return ancestor
    return None


def _own_mounts() -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(_CLONE_NEWNS) != 0:
        raise Failed("make a mount namespace", os.strerror(ctypes.get_errno()))
    # No mount that is made here may be visible outside.
    _mount("none", Path("/"), "", _MS_REC | _MS_PRIVATE, "")


def _mount(source: str, target: Path, kind: str, flags: int, options: str) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    result = libc.mount(
        source.encode(),
        os.fsencode(target),
        kind.encode(),
        ctypes.c_ulong(flags),
        options.encode(),
    )
    if result != 0:
        raise Failed(f"mount {target}", os.strerror(ctypes.get_errno()))
