"""Destinations that clients without a rule were refused: the set ``tried``, which packets fill."""

from __future__ import annotations

from ipaddress import IPv4Address
from typing import Final, NamedTuple

from egressd.netd.kernel import uapi
from egressd.netd.kernel.netlink import NetlinkSocket
from egressd.netd.kernel.set_elements import INET, dump

_SET: Final = "tried"


class Tried(NamedTuple):
    """A destination, and the packets to it that were refused."""

    client: str
    protocol: int
    """Its number in the IP header."""
    ip: str
    port: int
    packets: int


def read() -> list[Tried]:
    """Return what was refused within the last hour. Raises OSError."""
    with NetlinkSocket(uapi.NETLINK_NETFILTER) as kernel:
        # Each part of a key is padded to words of 32 bits.
        return [
            Tried(
                client=str(IPv4Address(each.key[:4])),
                protocol=each.key[4],
                ip=str(IPv4Address(each.key[8:12])),
                port=int.from_bytes(each.key[12:14], "big"),
                packets=int.from_bytes(each.packets, "big"),
            )
            for each in dump(kernel, INET, _SET)
        ]
