"""Packets by which clients notice that their connections are gone."""

from __future__ import annotations

import struct
from socket import IPPROTO_TCP, inet_aton

from hypothesis import given
from hypothesis import strategies as st

from egressd.netd.cluster.takeover import pokes
from egressd.netd.kernel.conntrack import Opened

PORTS = st.integers(1, 65535)
ADDRESSES = st.binary(min_size=4, max_size=4)
CONNECTIONS = st.builds(Opened, client=ADDRESSES, client_port=PORTS, far=ADDRESSES, far_port=PORTS)


def sums_up(data: bytes) -> bool:
    """True if the Internet checksum within these bytes is right (RFC 1071)."""
    total: int = sum(struct.unpack(f">{len(data) // 2}H", data))
    return (total & 0xFFFF) + (total >> 16) == 0xFFFF


@given(CONNECTIONS)
def test_a_poke_is_an_acknowledgement_of_the_far_end(connection: Opened) -> None:
    ((packet, client),) = pokes([connection])
    assert inet_aton(client) == connection.client
    assert packet[12:20] == connection.far + connection.client
    assert struct.unpack(">H", packet[2:4]) == (len(packet),)
    assert packet[9] == IPPROTO_TCP
    segment = packet[20:]
    assert struct.unpack(">HH", segment[:4]) == (connection.far_port, connection.client_port)
    assert segment[13] == 0x10
    pseudo = connection.far + connection.client + bytes([0, IPPROTO_TCP, 0, len(segment)])
    assert sums_up(pseudo + segment)


def test_each_connection_is_poked() -> None:
    some = [Opened(inet_aton("10.0.0.1"), port, inet_aton("192.0.2.1"), 80) for port in (1, 2)]
    assert len([*pokes(some)]) == 2
