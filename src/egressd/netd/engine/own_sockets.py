"""Kernel programs that see requests of the engine's sockets (BPF at hooks of cgroups).

They concern one user in one network namespace, and hold for as long as the descriptors of their
links are open.
"""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Collection
from typing import Final

from egressd.netd.kernel import uapi
from egressd.netd.kernel.ebpf import cgroup, system
from egressd.netd.kernel.ebpf.assembler import R0, R1, R6, R7, Program

_ALLOW: Final = 1  # the result of a cgroup program that lets the call go on


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
        value = any_socket.getsockopt(socket.SOL_SOCKET, uapi.SO_NETNS_COOKIE, 8)
    return int.from_bytes(value, sys.byteorder)


def pass_others(it: Program, uid: int, namespace: int) -> None:
    """Emit a jump to ``allow`` except for this user in this network namespace. R6 is the context
    from here on; R0 and R7 are used.
    """
    it.mov(R6, R1)
    it.call(uapi.BPF_FUNC_get_current_uid_gid)
    it.jne(R0, uid, "allow", bits=32)
    _pass_other_namespaces(it, namespace)


def pass_users(it: Program, uids: Collection[int], namespace: int) -> None:
    """Emit a jump to ``allow`` for these users, in any namespace, and for other namespaces. It uses
    the same registers.
    """
    it.mov(R6, R1)
    it.call(uapi.BPF_FUNC_get_current_uid_gid)
    for uid in uids:
        it.jeq(R0, uid, "allow", bits=32)
    _pass_other_namespaces(it, namespace)


def _pass_other_namespaces(it: Program, namespace: int) -> None:
    it.mov(R1, R6)
    it.call(uapi.BPF_FUNC_get_netns_cookie)
    it.mov(R7, R0)
    it.rsh(R7, 32)
    it.jne(R7, namespace >> 32, "allow", bits=32)
    it.jne(R0, namespace & 0xFFFF_FFFF, "allow", bits=32)


def allow(it: Program) -> None:
    """Emit the end: allow the request as the program has left it."""
    it.label("allow")
    it.mov(R0, _ALLOW)
    it.exit()
