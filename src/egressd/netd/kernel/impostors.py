"""Devices that used the address of another one: the set ``impostors``, which packets fill."""

from __future__ import annotations

from ipaddress import IPv4Address
from typing import Final

from egressd.model.messages import Impostor
from egressd.netd.kernel import uapi
from egressd.netd.kernel.netlink import NetlinkSocket
from egressd.netd.kernel.set_elements import INET, dump

_SET: Final = "impostors"
_MAC: Final = slice(4, 10)
"""The part of a key with the hardware address; each part is padded to words of 32 bits."""


def read() -> list[Impostor]:
    """Return the impostors of the last hour. Raises OSError."""
    with NetlinkSocket(uapi.NETLINK_NETFILTER) as kernel:
        return [
            Impostor(
                ip=str(IPv4Address(each.key[:4])),
                mac=each.key[_MAC].hex(":"),
                packets=int.from_bytes(each.packets, "big"),
            )
            for each in dump(kernel, INET, _SET)
        ]
