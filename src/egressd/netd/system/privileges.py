"""Drop root privileges, in two steps, in a process that was started as root.

egressd and its interpreter may lie under a folder that only root can enter, and modules and
shared libraries are opened long after a process has started. So between the two steps the
process still reads files as root, their owner, but holds only the capabilities that it keeps:

1. `begin_drop`, with one thread: user and group ids, capabilities, bounding set, securebits
   and no_new_privs. All but the user id belong to a thread (capabilities(7), credentials(7)),
   and threads started later inherit them: the Go runtime starts its own when it is loaded.
2. `finish_drop`, with any number of threads: the effective user id. glibc gives it to every
   thread (nptl(7), "NPTL and the C library").

``SECBIT_NO_SETUID_FIXUP`` keeps the kernel from adding or taking capabilities when user ids
change between 0 and others; it is locked, with ``SECBIT_NOROOT``, so that neither user id 0
nor a program run later gives a capability back.
"""

from __future__ import annotations

import ctypes
import os
import resource
from collections.abc import Collection
from enum import IntEnum
from pathlib import Path
from typing import Final


class Capability(IntEnum):
    """The capabilities that egressd's unprivileged processes may keep (linux/capability.h)."""

    NET_BIND_SERVICE = 10
    NET_ADMIN = 12
    NET_RAW = 13


# linux/prctl.h
_PR_SET_DUMPABLE: Final = 4
_PR_CAPBSET_DROP: Final = 24
_PR_SET_SECUREBITS: Final = 28
_PR_SET_NO_NEW_PRIVS: Final = 38
_PR_CAP_AMBIENT: Final = 47
_PR_CAP_AMBIENT_CLEAR_ALL: Final = 4

# linux/securebits.h: NOROOT, NO_SETUID_FIXUP and NO_CAP_AMBIENT_RAISE set, KEEP_CAPS clear,
# and each of the four locked by the bit above it.
_SECUREBITS: Final = 0b11_10_11_11

_LINUX_CAPABILITY_VERSION_3: Final = 0x2008_0522  # linux/capability.h

_libc = ctypes.CDLL(None, use_errno=True)


class _Header(ctypes.Structure):
    """``struct __user_cap_header_struct``."""

    _fields_ = (("version", ctypes.c_uint32), ("pid", ctypes.c_int))


class _Data(ctypes.Structure):
    """``struct __user_cap_data_struct``, of which version 3 takes two: low and high 32 bits."""

    _fields_ = (
        ("effective", ctypes.c_uint32),
        ("permitted", ctypes.c_uint32),
        ("inheritable", ctypes.c_uint32),
    )


def become(uid: int, gid: int, keep: Collection[Capability] = ()) -> None:
    """Do both steps at once, in a process that reads no more of root's files."""
    begin_drop(uid, gid, keep)
    finish_drop()


def begin_drop(uid: int, gid: int, keep: Collection[Capability] = ()) -> None:
    """Give up all of root's privileges but reading its files and the capabilities in `keep`.

    The process must have one thread. It gets `gid` as its only group, leaves no core dump
    and can't be traced by its user. Raises RuntimeError when it has more threads, ValueError
    when `uid` or `gid` is root's, OSError when the kernel refuses (not root, or in a sandbox).
    """
    if uid == 0 or gid == 0:
        raise ValueError(f"uid {uid} and gid {gid} must not be root's")
    threads = len(list(Path("/proc/self/task").iterdir()))
    if threads != 1:
        raise RuntimeError(f"privileges must be dropped before threads start, not with {threads}")
    _prctl(_PR_SET_SECUREBITS, _SECUREBITS)
    last = int(Path("/proc/sys/kernel/cap_last_cap").read_text())
    for capability in range(last + 1):
        if capability not in keep:
            _prctl(_PR_CAPBSET_DROP, capability)
    _prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL)
    os.setgroups([])
    os.setresgid(gid, gid, gid)
    os.setresuid(uid, 0, uid)
    _set_capabilities(keep)
    _prctl(_PR_SET_NO_NEW_PRIVS, 1)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _prctl(_PR_SET_DUMPABLE, 0)


def finish_drop() -> None:
    """Give up reading root's files too, in every thread. Must follow `begin_drop`."""
    uid = os.getresuid()[0]
    os.setresuid(uid, uid, uid)
    # A changed effective user id sets it to fs.suid_dumpable again (prctl(2)).
    _prctl(_PR_SET_DUMPABLE, 0)


def _set_capabilities(keep: Collection[Capability]) -> None:
    """Make the effective and permitted sets `keep`, and the inheritable one empty."""
    mask = sum(1 << capability for capability in set(keep))
    header = _Header(_LINUX_CAPABILITY_VERSION_3, 0)
    low = mask & 0xFFFF_FFFF
    data = (_Data * 2)(_Data(low, low, 0), _Data(mask >> 32, mask >> 32, 0))
    if _libc.capset(ctypes.byref(header), ctypes.byref(data)) != 0:
        _raise("capset")


def _prctl(option: int, argument: int) -> None:
    # The kernel reads five unsigned longs; ctypes would pass shorter ones as ints.
    rest = (ctypes.c_ulong(0), ctypes.c_ulong(0), ctypes.c_ulong(0))
    if _libc.prctl(option, ctypes.c_ulong(argument), *rest) != 0:
        _raise(f"prctl {option}")


def _raise(call: str) -> None:
    error = ctypes.get_errno()
    raise OSError(error, f"{call}: {os.strerror(error)}")
