"""Keeps the engine's answers off this machine's UDP ports.

The engine answers a client in the name of the far end: by a socket that is bound to the far end's
address and port (``IP_TRANSPARENT``). Such a socket takes the port on this machine: a server on
``*:443`` that does not share it (``SO_REUSEADDR``) makes clients' UDP to outside ports 443 dead,
and cannot be started while such a socket is there; and a socket at the router's own address takes
questions from the resolver that listens there.

So the kernel binds them to `ANSWER_PORT` instead, which nobody else gets: a program at the
``BPF_CGROUP_INET4_BIND`` hook, for the engine's user in this network namespace, puts that port in
place of the far end's, and the far end's into the socket's mark (`MARK_ANSWER`). The chain
``output_answers`` in `egressd.planner.chains` puts it back into the packets before connection
tracking sees them.
"""

from __future__ import annotations

import os
import socket
import sys
from typing import Final

from egressd.netd.kernel.ebpf import cgroup, system
from egressd.netd.kernel.ebpf.assembler import FP, R0, R1, R2, R3, R4, R5, R6, R7, Program
from egressd.planner.registry import ANSWER_PORT, MARK_ANSWER

# Helper functions, from enum bpf_func_id in linux/bpf.h.
_BPF_FUNC_GET_CURRENT_UID_GID: Final = 15
_BPF_FUNC_SETSOCKOPT: Final = 49
_BPF_FUNC_GET_NETNS_COOKIE: Final = 122

# Offsets in struct bpf_sock_addr.
_USER_IP4, _USER_PORT, _TYPE = 4, 24, 32
_SOL_SOCKET: Final = 1
_SO_MARK: Final = 36
_SO_NETNS_COOKIE: Final = 71
_LOOPBACK: Final = 127
_REFUSE, _ALLOW = 0, 1


def divert(uid: int) -> tuple[int, int]:
    """Have sockets of the user `uid` in this network namespace bound so from now on, for as long as
    the descriptors that are returned are open. Raises OSError where the kernel, or what this
    process may do, stands against it.
    """
    namespace = _namespace()
    root = cgroup.open_root()
    try:
        return (
            _attach(diverting(uid, namespace), root, system.BPF_CGROUP_INET4_BIND),
            _attach(refusing(uid, namespace), root, system.BPF_CGROUP_INET6_BIND),
        )
    finally:
        os.close(root)


def obstacle(uid: int) -> str:
    """Why the kernel does not bind the engine's answers elsewhere; empty where it does."""
    try:
        descriptors = divert(uid)
    except OSError as error:
        return error.strerror or str(error)
    for descriptor in descriptors:
        os.close(descriptor)
    return ""


def _attach(code: bytes, root: int, attach_type: int) -> int:
    kind = system.BPF_PROG_TYPE_CGROUP_SOCK_ADDR
    program = system.load("egressd_answers", code, kind=kind, attach_type=attach_type)
    try:
        return system.link(program, root, attach_type)
    finally:
        os.close(program)


def _namespace() -> int:
    """The number that the kernel knows this network namespace by."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        value = any_socket.getsockopt(socket.SOL_SOCKET, _SO_NETNS_COOKIE, 8)
    return int.from_bytes(value, sys.byteorder)


def diverting(uid: int, namespace: int) -> bytes:
    """The program that changes the IPv4 ports of a user's UDP sockets in a network namespace."""
    it = Program()
    _pass_others(it, uid, namespace)
    it.load(4, R3, R6, _USER_IP4)
    it.number(R3, "&", 0xFF, bits=32)  # its first byte, which comes first in memory
    it.go_if(R3, "==", _LOOPBACK, "allow", bits=32)
    # The mark: the port in this machine's byte order.
    it.register(R2, "=", R7)
    it.number(R2, ">>", 8)
    it.number(R2, "&", 0xFF)
    it.number(R7, "&", 0xFF)
    it.number(R7, "<<", 8)
    it.register(R7, "|", R2)
    it.number(R7, "|", MARK_ANSWER, bits=32)
    it.store(4, FP, -4, R7)
    it.register(R1, "=", R6)
    it.number(R2, "=", _SOL_SOCKET)
    it.number(R3, "=", _SO_MARK)
    it.register(R4, "=", FP)
    it.number(R4, "+", -4)
    it.number(R5, "=", 4)
    it.call(_BPF_FUNC_SETSOCKOPT)
    # Without a mark nothing would put the port back.
    it.go_if(R0, "!=", 0, "allow", bits=32)
    it.number(R7, "=", socket.htons(ANSWER_PORT))
    it.store(4, R6, _USER_PORT, R7)
    _allow(it)
    return it.assembled()


def refusing(uid: int, namespace: int) -> bytes:
    """The program that refuses IPv6 ports to them: no client is answered in an IPv6 name, and any
    address (``0.0.0.0`` as the far end's) is IPv6's and IPv4's in one to the engine.
    """
    it = Program()
    _pass_others(it, uid, namespace)
    it.number(R0, "=", _REFUSE)
    it.exit()
    _allow(it)
    return it.assembled()


def _pass_others(it: Program, uid: int, namespace: int) -> None:
    """Go on with answers only: R6 is the context, R7 the port in network order."""
    it.register(R6, "=", R1)
    it.call(_BPF_FUNC_GET_CURRENT_UID_GID)
    it.go_if(R0, "!=", uid, "allow", bits=32)
    it.register(R1, "=", R6)
    it.call(_BPF_FUNC_GET_NETNS_COOKIE)
    it.register(R7, "=", R0)
    it.number(R7, ">>", 32)
    it.go_if(R7, "!=", namespace >> 32, "allow", bits=32)
    it.go_if(R0, "!=", namespace & 0xFFFF_FFFF, "allow", bits=32)
    it.load(4, R7, R6, _TYPE)
    it.go_if(R7, "!=", socket.SOCK_DGRAM, "allow", bits=32)
    it.load(4, R7, R6, _USER_PORT)
    # Any port: a socket towards the outside. The listeners of clients are on loopback.
    it.go_if(R7, "==", 0, "allow", bits=32)
    it.go_if(R7, "==", socket.htons(ANSWER_PORT), "allow", bits=32)


def _allow(it: Program) -> None:
    it.label("allow")
    it.number(R0, "=", _ALLOW)
    it.exit()
