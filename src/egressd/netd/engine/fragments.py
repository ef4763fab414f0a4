"""Lets the engine's QUIC datagrams be fragmented, so that no ICMP error can end a session.

The engine forbids it (``IP_PMTUDISC_DO``). For a connected socket with that option the kernel turns
each "fragmentation needed" into an error (``__udp4_lib_err`` in the kernel's udp.c), and the engine
ends the session, with every connection in it: an attacker who guesses a port does so with one
packet (measured; `tests/lab/test_posing.py`). So a program at the ``BPF_CGROUP_SETSOCKOPT`` hook
sets ``IP_PMTUDISC_DONT`` instead. The kernel still learns the path MTU, and fragments.
"""

from __future__ import annotations

import socket
from typing import Final

from egressd.netd.engine import own_sockets
from egressd.netd.kernel import uapi
from egressd.netd.kernel.ebpf.assembler import R1, R2, R3, R6, R7, Program

# Offsets in struct bpf_sockopt.
_OPTVAL, _OPTVAL_END, _LEVEL, _OPTNAME = 8, 16, 24, 28
_VALUE: Final = 4
"""Bytes of the option's value."""


def allow(uid: int) -> int:
    """Change this option for sockets of the user `uid` in this network namespace from now on, for
    as long as the returned descriptor is open. Raises OSError if the kernel does not support it or
    this process lacks the rights.
    """
    return own_sockets.attach(
        "egressd_whole",
        allowing(uid, own_sockets.namespace()),
        uapi.BPF_PROG_TYPE_CGROUP_SOCKOPT,
        uapi.BPF_CGROUP_SETSOCKOPT,
    )


def allowing(uid: int, namespace: int) -> bytes:
    """Return the program that changes the option of a user's sockets in a network namespace."""
    it = Program()
    own_sockets.pass_others(it, uid, namespace)
    it.ldx(4, R7, R6, _LEVEL)
    it.ldx(4, R1, R6, _OPTNAME)
    it.jeq(R7, socket.IPPROTO_IP, "ipv4", bits=32)
    it.jne(R7, socket.IPPROTO_IPV6, "allow", bits=32)
    it.jeq(R1, uapi.IPV6_MTU_DISCOVER, "change", bits=32)
    it.ja("allow")
    it.label("ipv4")
    it.jne(R1, uapi.IP_MTU_DISCOVER, "allow", bits=32)
    it.label("change")
    it.ldx(8, R2, R6, _OPTVAL)
    it.ldx(8, R3, R6, _OPTVAL_END)
    it.mov(R1, R2)
    it.add(R1, _VALUE)
    it.jgt(R1, R3, "allow")
    it.st(4, R2, 0, uapi.IP_PMTUDISC_DONT)
    own_sockets.allow(it)
    return it.assembled()
