"""Counts the questions for names that the kernel has sent on, by the mark of the way they took."""

from __future__ import annotations

import sys
from typing import Final

from egressd.netd.kernel.netlink import NETFILTER, NetlinkSocket
from egressd.netd.kernel.set_elements import INET, dump

_SET: Final = "questions"


def read() -> dict[int, int]:
    """Mark -> how many flows of questions there were, of the ways asked by in the last minute.

    Raises OSError.
    """
    with NetlinkSocket(NETFILTER) as kernel:
        return {
            int.from_bytes(each.key, sys.byteorder): int.from_bytes(each.packets, "big")
            for each in dump(kernel, INET, _SET)
        }
