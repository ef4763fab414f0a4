"""Kernel programs that see requests of the engine's sockets (BPF at hooks of cgroups).

They concern one user in one network namespace, and hold for as long as the descriptors of their
links are open. Numbers and offsets are those of linux/bpf.h.
"""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Collection
from typing import Final

from egressd.netd.kernel.ebpf import cgroup, system
from egressd.netd.kernel.ebpf.assembler import R0, R1, R6, R7, Program

_BPF_FUNC_GET_CURRENT_UID_GID: Final = 15
_BPF_FUNC_GET_NETNS_COOKIE: Final = 122
_SO_NETNS_COOKIE: Final = 71
_ALLOW: Final = 1


def attach(name: str, code: bytes, kind: int, attach_type: int) -> int:
    """Attach a program to a hook; return the descriptor of its link. Raises OSError if the kernel
    does not support it or this process lacks the rights.
    """
    root = cgroup.open_root()
    try:
        program = system.load(name, code, kind=kind, attach_type=attach_type)
        try:
            return system.link(program, root, attach_type)
        finally:
            os.close(program)
    finally:
        os.close(root)


def namespace() -> int:
    """Return the kernel's number of this network namespace (its cookie)."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        value = any_socket.getsockopt(socket.SOL_SOCKET, _SO_NETNS_COOKIE, 8)
    return int.from_bytes(value, sys.byteorder)


def pass_others(it: Program, uid: int, namespace: int) -> None:
    """Emit a jump to ``allow`` except for this user in this network namespace. R6 is the context
    from here on; R0 and R7 are used.
    """
    it.register(R6, "=", R1)
    it.call(_BPF_FUNC_GET_CURRENT_UID_GID)
    it.go_if(R0, "!=", uid, "allow", bits=32)
    _pass_other_namespaces(it, namespace)


def pass_users(it: Program, uids: Collection[int], namespace: int) -> None:
    """Emit a jump to ``allow`` for these users, in any namespace, and for other namespaces. It uses
    the same registers.
    """
    it.register(R6, "=", R1)
    it.call(_BPF_FUNC_GET_CURRENT_UID_GID)
    for uid in uids:
        it.go_if(R0, "==", uid, "allow", bits=32)
    _pass_other_namespaces(it, namespace)


def _pass_other_namespaces(it: Program, namespace: int) -> None:
    it.register(R1, "=", R6)
    it.call(_BPF_FUNC_GET_NETNS_COOKIE)
    it.register(R7, "=", R0)
    it.number(R7, ">>", 32)
    it.go_if(R7, "!=", namespace >> 32, "allow", bits=32)
    it.go_if(R0, "!=", namespace & 0xFFFF_FFFF, "allow", bits=32)


def allow(it: Program) -> None:
    """Emit the end: allow the request as the program has left it."""
    it.label("allow")
    it.number(R0, "=", _ALLOW)
    it.exit()
