"""Requests of DHCP clients on a link, as bytes: the kernel picks them out, and nothing here reads
their content.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import Final

from egressd.netd.kernel import classic_bpf, uapi
from egressd.netd.kernel.classic_bpf import NOTHING

PACKET_MAX: Final = 1500
"""Bytes of a packet that get through."""
_RECEIVE_BUFFER: Final = 1 << 16
"""Bytes that may wait in the kernel: a flood loses what is beyond."""
_READ_MAX: Final = 64
"""Packets that are read before other tasks have their turn."""
_SERVER_PORT: Final = 67
_FRAGMENT: Final = 0x3FFF
"""More fragments follow, or this is not the first."""

_PROGRAM: Final = classic_bpf.assembled(
    (uapi.BPF_LD | uapi.BPF_B | uapi.BPF_ABS, 0, 0, 9),  # the protocol
    (uapi.BPF_JMP | uapi.BPF_JEQ, 0, 6, socket.IPPROTO_UDP),
    (uapi.BPF_LD | uapi.BPF_H | uapi.BPF_ABS, 0, 0, 6),
    (uapi.BPF_JMP | uapi.BPF_JSET, 4, 0, _FRAGMENT),
    (uapi.BPF_LDX | uapi.BPF_B | uapi.BPF_MSH, 0, 0, 0),  # the length of the IP header
    (uapi.BPF_LD | uapi.BPF_H | uapi.BPF_IND, 0, 0, 2),  # the destination port
    (uapi.BPF_JMP | uapi.BPF_JEQ, 0, 1, _SERVER_PORT),
    (uapi.BPF_RET, 0, 0, PACKET_MAX),
    (uapi.BPF_RET, 0, 0, NOTHING),
)
"""Lets the first `PACKET_MAX` bytes of a UDP packet to a DHCP server through, and nothing else."""
_SILENCE: Final = classic_bpf.assembled((uapi.BPF_RET, 0, 0, NOTHING))


class DhcpRequests:
    """Calls ``heard(mac, packet)`` in the running event loop for each DHCP request that comes in by
    an interface: with the sender's hardware address and the IPv4 packet.

    The socket is one of the protocol IPv4 and not of all protocols: so packets that the fast path
    takes never come to it. `pause` has the kernel drop all requests until `resume`.
    """

    def __init__(self, interface: str, heard: Callable[[bytes, bytes], None]) -> None:
        """Raises OSError if there is no such interface."""
        self._heard = heard
        # It receives nothing before `bind` says what, so that the filter sees each packet.
        self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, 0)
        try:
            self._socket.setblocking(False)
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _RECEIVE_BUFFER)
            classic_bpf.attach(self._socket, _PROGRAM)
            self._socket.bind((interface, uapi.ETH_P_IP))
        except OSError:
            self._socket.close()
            raise
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._socket, self._read)

    def pause(self) -> None:
        """Hear nothing."""
        classic_bpf.attach(self._socket, _SILENCE)

    def resume(self) -> None:
        """Hear requests from now on."""
        classic_bpf.attach(self._socket, _PROGRAM)

    def close(self) -> None:
        """Stop listening. May be called again."""
        if self._socket.fileno() >= 0:
            self._loop.remove_reader(self._socket)
            self._socket.close()

    def _read(self) -> None:
        for _ in range(_READ_MAX):
            try:
                packet, sender = self._socket.recvfrom(PACKET_MAX)
            except BlockingIOError:
                return
            except OSError:
                return  # the interface went down; `recvfrom` reports that once
            _, _, _, kind, mac = sender
            if kind == uapi.ARPHRD_ETHER:
                self._heard(mac, packet)
