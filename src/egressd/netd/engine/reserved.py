"""Keeps ports from other users of the machine, even while their owner does not listen.

While a worker restarts, any user could take the ports of its proxy services, and with them the
passwords that clients send; and an API that listens in one family, or at one address, leaves the
same port of others free. Programs at the bind hooks (`egressd.netd.engine.own_sockets`) refuse the
ports to all users except root and one more. Workers inherit the descriptors, so that this holds
while netd restarts; a port that is given up meanwhile is refused until those workers end.
"""

from __future__ import annotations

import os
import socket
from typing import Final

import structlog

from egressd.netd.engine import own_sockets
from egressd.netd.kernel import uapi
from egressd.netd.kernel.ebpf import system
from egressd.netd.kernel.ebpf.assembler import FP, R0, R1, R2, R6, R7, Program

log = structlog.get_logger()

# Offsets in struct bpf_sock_addr.
_USER_PORT, _TYPE = 24, 32
_ROOT: Final = 0
_REFUSE: Final = 0
_KEY_BYTES: Final = 4
_ROOM: Final = 65_536


class ReservedPorts:
    """TCP ports by the key of the service that each is for. Without `open` nothing is refused."""

    def __init__(self, uid: int) -> None:
        """`uid` is the user that may have the ports."""
        self._uid = uid
        self._ports: dict[str, int] = {}
        self._map: system.Map | None = None

    def open(self) -> None:
        """Begin to refuse them. If the kernel cannot, that is logged."""
        try:
            found = system.Map.make("egressd_ports", key_size=_KEY_BYTES, value_size=1, room=_ROOM)
            for attach_type in (uapi.BPF_CGROUP_INET4_BIND, uapi.BPF_CGROUP_INET6_BIND):
                code = refusing(self._uid, own_sockets.namespace(), found.descriptor)
                link = own_sockets.attach(
                    "egressd_ports", code, uapi.BPF_PROG_TYPE_CGROUP_SOCK_ADDR, attach_type
                )
                os.set_inheritable(link, True)  # it is never closed
        except OSError as error:
            log.warning("reserved ports are not protected from other users", error=error.strerror)
        else:
            self._map = found

    def hold(self, key: str, port: int) -> None:
        """Reserve the port for that service, in place of its earlier one."""
        if self._ports.get(key) == port:
            return
        self.release(key)
        self._ports[key] = port
        if self._map is not None:
            self._map.put(_packed(port), b"\1")

    def release(self, key: str) -> None:
        """Release the service's port for all users."""
        port = self._ports.pop(key, 0)
        if port and self._map is not None and port not in self._ports.values():
            self._map.drop(_packed(port))


def _packed(port: int) -> bytes:
    """Return a port in the form that the program finds: in network order, in four bytes."""
    return port.to_bytes(2, "big") + bytes(2)


def refusing(uid: int, namespace: int, ports: int) -> bytes:
    """Return the program that refuses the ports in the map open as `ports` to all users except root
    and `uid`, for TCP in a network namespace.
    """
    it = Program()
    own_sockets.pass_users(it, {_ROOT, uid}, namespace)
    it.ldx(4, R7, R6, _TYPE)
    it.jne(R7, socket.SOCK_STREAM, "allow", bits=32)
    it.ldx(4, R7, R6, _USER_PORT)
    it.stx(4, FP, -_KEY_BYTES, R7)
    it.ld_map_fd(R1, ports)
    it.mov(R2, FP)
    it.add(R2, -_KEY_BYTES)
    it.call(uapi.BPF_FUNC_map_lookup_elem)
    it.jeq(R0, 0, "allow")
    it.mov(R0, _REFUSE)
    it.exit()
    own_sockets.allow(it)
    return it.assembled()
