"""Packet capture from a ring that the kernel shares with this process (TPACKET_V3).

The kernel writes packets and its own timestamps into mapped memory, block by block
(Documentation/networking/packet_mmap.rst; the layouts are <linux/if_packet.h>'s). So there is no
system call per packet, and the kernel reports exactly how many packets it had no room for: none
until 64 MiB are full, or a busy process has not read for 2.5 s (a block is handed over at least
every 10 ms, whatever is in it).
"""

from __future__ import annotations

import contextlib
import mmap
import os
import select
import socket
import struct
import threading
import time
from typing import Final

from egressd_lab import packets
from egressd_lab.observed import Captured, Flow, Packet

_SOL_PACKET: Final = 263
_PACKET_RX_RING: Final = 5
_PACKET_STATISTICS: Final = 6
_PACKET_VERSION: Final = 10
_TPACKET_V3: Final = 2
_ETH_P_ALL: Final = 0x0003
_ETH_P_EXPERIMENT: Final = 0x88B5
"""IEEE 802's EtherType for local experiments. Barriers carry it; no other program reads them."""
_ETH_P_IP: Final = 0x0800
_PAYLOAD_MIN: Final = 46
"""Bytes that an Ethernet frame carries at least."""
_NOBODY: Final = b"\x02\0\0\0\0\x01"
"""A MAC address that no host has."""
_OUTGOING: Final = 4  # PACKET_OUTGOING

BLOCK: Final = 1 << 18
BLOCKS: Final = 256
_RETIRE_MS: Final = 10
_FRAME: Final = 2048
"""Only sizes the ring: in version 3 a packet may fill a whole block."""
_REQUEST: Final = struct.pack(
    "IIIIIII", BLOCK, BLOCKS, _FRAME, BLOCK // _FRAME * BLOCKS, _RETIRE_MS, 0, 0
)

_BLOCK_HEAD: Final = struct.Struct("8xIII")
"""block_status, num_pkts, offset_to_first_pkt of ``struct tpacket_block_desc``."""
_STATUS_AT: Final = 8
_PACKET_HEAD: Final = struct.Struct("IIIIIIHH")
"""next_offset, sec, nsec, snaplen, len, status, mac, net of ``struct tpacket3_hdr``."""
_LINK: Final = struct.Struct("!2xH4x2xB")
_LINK_AT: Final = 48
"""The offset of ``struct sockaddr_ll`` behind the header: protocol at 2, packet type at 10."""
_INDEX: Final = struct.Struct("i")
_IP_PROTOCOLS: Final = (0x0800, 0x86DD)
_BARRIER_WAIT_S: Final = 5.0

Key = tuple[int, bool, packets.Headers, bytes]


class Ring:
    """Captures on one interface, or on all of a namespace's if `interface` is empty.

    With `keep` it also keeps every packet that carries a token, and does not only count. A ring
    ends with its process.
    """

    def __init__(self, interface: str, keep: bool) -> None:
        self._interface = interface
        self._keep = keep
        self._names: dict[int, str] = {}
        self._flows: dict[Key, list[int]] = {}
        self._packets: list[tuple[int, Key, int]] = []
        self._barriers: set[bytes] = set()
        self._total = 0
        self._dropped = 0
        protocol = 0 if interface else socket.htons(_ETH_P_ALL)  # 0: nothing until bound
        self._sock = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, protocol)
        self._sock.setsockopt(_SOL_PACKET, _PACKET_VERSION, struct.pack("I", _TPACKET_V3))
        self._sock.setsockopt(_SOL_PACKET, _PACKET_RX_RING, _REQUEST)
        self._map = mmap.mmap(self._sock.fileno(), BLOCK * BLOCKS)
        if interface:
            self._sock.bind((interface, _ETH_P_ALL))
        self._lock = threading.Lock()
        threading.Thread(target=self._run, daemon=True).start()

    def snapshot(self) -> Captured:
        """Return all that was captured before this call."""
        self._barrier()
        with self._lock:
            self._count_drops()
            return Captured(
                flows=tuple(self._flow(key, *sums) for key, sums in self._flows.items()),
                packets=tuple(self._packet(*kept) for kept in self._packets),
                total=self._total,
                dropped=self._dropped,
            )

    def clear(self) -> None:
        """Discard all that was captured until now."""
        self._barrier()
        with self._lock:
            self._flows.clear()
            self._packets.clear()
            self._total = 0

    def inject(self, token: str) -> list[str]:
        """Send a packet with `token` on each captured interface that is up, and return their names.

        It goes to an unused MAC address, so that no host accepts it.
        """
        body = packets.udp(9, 9, token.encode())
        packet = packets.ipv4("192.0.2.254", "192.0.2.253", packets.UDP, body)
        names = [self._interface] if self._interface else [n for _, n in socket.if_nameindex()]
        return [name for name in names if self._send(name, _ETH_P_IP, packet)]

    def _barrier(self) -> None:
        """Wait until every packet that arrived before this call has been counted.

        A marked frame is sent behind them and awaited. If the interface is down, no more packets
        arrive, and two of the ring's own retirement periods are enough.
        """
        name = self._interface or "lo"
        mark = os.urandom(16)
        if not self._send(name, _ETH_P_EXPERIMENT, mark.ljust(_PAYLOAD_MIN, b"\0")):
            time.sleep(2 * _RETIRE_MS / 1000)
            return
        deadline = time.monotonic() + _BARRIER_WAIT_S
        while mark not in self._barriers:
            if time.monotonic() > deadline:
                raise TimeoutError(f"the capture on {name} has not caught up")
            time.sleep(0.001)
        self._barriers.discard(mark)

    @staticmethod
    def _send(name: str, protocol: int, payload: bytes) -> bool:
        # The kernel adds a link header if the interface has one: a tunnel has none.
        with (
            contextlib.suppress(OSError),
            socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, 0) as sock,
        ):
            sock.sendto(payload, (name, protocol, 0, 0, _NOBODY))
            return True
        return False

    def _run(self) -> None:
        poll = select.poll()
        poll.register(self._sock, select.POLLIN)
        block = 0
        while True:
            status, count, first = _BLOCK_HEAD.unpack_from(self._map, block * BLOCK)
            if status & 1:  # TP_STATUS_USER
                with self._lock:
                    self._read_block(block * BLOCK, count, first)
                struct.pack_into("I", self._map, block * BLOCK + _STATUS_AT, 0)
                block = (block + 1) % BLOCKS
                continue
            if any(event & select.POLLERR for _, event in poll.poll()):
                # The interface went down or away; the error is pending until it is read.
                self._sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
                time.sleep(_RETIRE_MS / 1000)

    def _read_block(self, base: int, count: int, first: int) -> None:
        at = base + first
        for _ in range(count):
            next_offset, sec, nsec, kept, _, _, mac, net = _PACKET_HEAD.unpack_from(self._map, at)
            protocol, kind = _LINK.unpack_from(self._map, at + _LINK_AT)
            if protocol in _IP_PROTOCOLS:
                (index,) = _INDEX.unpack_from(self._map, at + _LINK_AT + 4)
                data = self._map[at + net : at + mac + kept]
                self._count(index, kind == _OUTGOING, sec * 1_000_000_000 + nsec, data)
            elif protocol == _ETH_P_EXPERIMENT:
                self._barriers.add(self._map[at + net : at + net + 16])
            at += next_offset

    def _count(self, index: int, outgoing: bool, time_ns: int, data: bytes) -> None:
        headers = packets.headers(data)
        if headers is None:
            return
        self._total += 1
        if index not in self._names:
            self._names[index] = _name_of(index)
        found = packets.TOKEN.search(data)
        if found is None and headers.port == 53:
            found = packets.TOKEN.search(data.lower())
        key = (index, outgoing, headers, found[0] if found else b"")
        sums = self._flows.get(key)
        if sums is None:
            self._flows[key] = [1, len(data), time_ns, time_ns]
        else:
            sums[0] += 1
            sums[1] += len(data)
            sums[3] = time_ns
        if found and self._keep:
            number = data[found.end() + 1 : found.end() + 11]
            self._packets.append((time_ns, key, int(number) if number.isdigit() else -1))

    def _count_drops(self) -> None:
        # struct tpacket_stats_v3: packets, drops, freeze count; reading sets them to zero.
        raw = self._sock.getsockopt(_SOL_PACKET, _PACKET_STATISTICS, 12)
        self._dropped += struct.unpack("III", raw)[1]

    def _flow(self, key: Key, count: int, octets: int, first_ns: int, last_ns: int) -> Flow:
        index, outgoing, headers, token = key
        return Flow(
            interface=self._names[index],
            outgoing=outgoing,
            protocol=packets.protocol_name(headers.protocol),
            source=packets.address_text(headers.source),
            destination=packets.address_text(headers.destination),
            port=headers.port,
            token=token.decode(),
            packets=count,
            octets=octets,
            first_ns=first_ns,
            last_ns=last_ns,
        )

    def _packet(self, time_ns: int, key: Key, sequence: int) -> Packet:
        index, outgoing, headers, token = key
        return Packet(
            time_ns=time_ns,
            interface=self._names[index],
            outgoing=outgoing,
            protocol=packets.protocol_name(headers.protocol),
            source=packets.address_text(headers.source),
            destination=packets.address_text(headers.destination),
            port=headers.port,
            token=token.decode(),
            sequence=sequence,
        )


def _name_of(index: int) -> str:
    try:
        return socket.if_indextoname(index)
    except OSError:
        return f"#{index}"  # the interface is gone already
