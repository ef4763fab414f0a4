"""Hosts that pose as IPv6 routers behind LANs, as packets have shown (the set ``advertised``)."""

from __future__ import annotations

from ipaddress import IPv6Address
from typing import Final

from egressd.netd.kernel import uapi
from egressd.netd.kernel.netlink import NetlinkSocket, text
from egressd.netd.kernel.set_elements import INET, dump

_SET: Final = "advertised"
_ADDRESS_BYTES: Final = 16


def read() -> tuple[tuple[str, IPv6Address], ...]:
    """Return interfaces and the routers behind them that were refused in the last 10 minutes.

    Raises OSError.
    """
    with NetlinkSocket(uapi.NETLINK_NETFILTER) as kernel:
        found = [each.key for each in dump(kernel, INET, _SET)]
    # An interface's name is padded with zeros.
    return tuple(
        (text(key[: uapi.IFNAMSIZ]), IPv6Address(key[uapi.IFNAMSIZ :][:_ADDRESS_BYTES]))
        for key in sorted(found)
    )
