"""Keeps the engine's answers off this machine's UDP ports.

The engine answers a client in the name of the remote server: by a socket that is bound to the
server's address and port (``IP_TRANSPARENT``). Such a socket takes the port on this machine: a
local server on ``*:443`` that does not share it (``SO_REUSEADDR``) blocks clients' UDP to outside
ports 443, and cannot be started while such a socket exists; and a socket at the router's own
address takes queries from the resolver that listens there.

So the kernel binds them to `ANSWER_PORT` instead, which is reserved for them: a program at the
``BPF_CGROUP_INET4_BIND`` hook, for the engine's user in this network namespace, replaces the remote
server's port by that one, and writes the server's port into the socket's mark (`MARK_ANSWER`). The
chain ``output_answers`` in `egressd.planner.chains` restores it in the packets before connection
tracking sees them.
"""

from __future__ import annotations

import os
import socket
from typing import Final

from egressd.netd.engine import own_sockets
from egressd.netd.kernel import uapi
from egressd.netd.kernel.ebpf.assembler import FP, R0, R1, R2, R3, R4, R5, R6, R7, Program
from egressd.planner.registry import ANSWER_PORT, MARK_ANSWER

# Offsets in struct bpf_sock_addr.
_USER_IP4, _USER_PORT, _TYPE = 4, 24, 32
_LOOPBACK: Final = 127
_REFUSE: Final = 0


def divert(uid: int) -> tuple[int, int]:
    """Divert the answer sockets of the user `uid` in this network namespace from now on, for as
    long as the returned descriptors are open. Raises OSError if the kernel does not support it or
    this process lacks the rights.
    """
    namespace = own_sockets.namespace()
    return (
        _attach(diverting(uid, namespace), uapi.BPF_CGROUP_INET4_BIND),
        _attach(refusing(uid, namespace), uapi.BPF_CGROUP_INET6_BIND),
    )


def problem(uid: int) -> str:
    """Return the reason why the kernel cannot divert the engine's answers; empty if it can."""
    try:
        descriptors = divert(uid)
    except OSError as error:
        return error.strerror or str(error)
    for descriptor in descriptors:
        os.close(descriptor)
    return ""


def _attach(code: bytes, attach_type: int) -> int:
    kind = uapi.BPF_PROG_TYPE_CGROUP_SOCK_ADDR
    return own_sockets.attach("egressd_answers", code, kind, attach_type)


def diverting(uid: int, namespace: int) -> bytes:
    """Return the program that changes the IPv4 ports of a user's UDP sockets in a network
    namespace.
    """
    it = Program()
    _pass_others(it, uid, namespace)
    it.ldx(4, R3, R6, _USER_IP4)
    it.and_(R3, 0xFF, bits=32)  # its first byte, which comes first in memory
    it.jeq(R3, _LOOPBACK, "allow", bits=32)
    # The mark contains the port in this machine's byte order.
    it.mov(R2, R7)
    it.rsh(R2, 8)
    it.and_(R2, 0xFF)
    it.and_(R7, 0xFF)
    it.lsh(R7, 8)
    it.or_(R7, R2)
    it.or_(R7, MARK_ANSWER, bits=32)
    it.stx(4, FP, -4, R7)
    it.mov(R1, R6)
    it.mov(R2, socket.SOL_SOCKET)
    it.mov(R3, socket.SO_MARK)
    it.mov(R4, FP)
    it.add(R4, -4)
    it.mov(R5, 4)
    it.call(uapi.BPF_FUNC_setsockopt)
    # Without a mark no rule would restore the port.
    it.jne(R0, 0, "allow", bits=32)
    it.mov(R7, socket.htons(ANSWER_PORT))
    it.stx(4, R6, _USER_PORT, R7)
    own_sockets.allow(it)
    return it.assembled()


def refusing(uid: int, namespace: int) -> bytes:
    """Return the program that refuses IPv6 ports to such sockets: no client is answered from an
    IPv6 address, and to the engine the unspecified address (``0.0.0.0`` as the remote server's)
    stands for both IPv6 and IPv4.
    """
    it = Program()
    _pass_others(it, uid, namespace)
    it.mov(R0, _REFUSE)
    it.exit()
    own_sockets.allow(it)
    return it.assembled()


def _pass_others(it: Program, uid: int, namespace: int) -> None:
    """Continue with answers only: R6 is the context, R7 the port in network order."""
    own_sockets.pass_others(it, uid, namespace)
    it.ldx(4, R7, R6, _TYPE)
    it.jne(R7, socket.SOCK_DGRAM, "allow", bits=32)
    it.ldx(4, R7, R6, _USER_PORT)
    # Port 0: a socket for outside destinations. The listeners of clients are on loopback.
    it.jeq(R7, 0, "allow", bits=32)
    it.jeq(R7, socket.htons(ANSWER_PORT), "allow", bits=32)
