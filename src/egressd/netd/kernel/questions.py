"""Counters of the DNS queries that the kernel has forwarded, by the mark of their egress."""

from __future__ import annotations

import sys
from typing import Final

from egressd.netd.kernel.netlink import KeptSocket
from egressd.netd.kernel.set_elements import INET, dump

_SET: Final = "questions"


def read(kept: KeptSocket) -> dict[int, int]:
    """Return mark -> number of query flows, for the egresses used for queries in the last minute.

    `kept`: of the protocol NETLINK_NETFILTER. Raises OSError.
    """
    with kept as kernel:
        return {
            int.from_bytes(each.key, sys.byteorder): int.from_bytes(each.packets, "big")
            for each in dump(kernel, INET, _SET)
        }
