"""Queueing disciplines, classes and filters of all programs, as rtnetlink lists them (tc(8)).

`tc.messages` and `fast_path.filters` make egressd's own.
"""

from __future__ import annotations

import errno
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple

from egressd.netd.kernel import uapi
from egressd.netd.kernel.netlink import NetlinkError, NetlinkSocket, attributes, number, text

HEADER: Final = struct.Struct("=BxxxiIII")
"""tcmsg: family, interface, handle, parent, info."""

FRONT_HANDLE: Final = uapi.TC_H_CLSACT & uapi.TC_H_MAJ_MASK
"""The handle of a qdisc that only is a place for filters, whose parent is TC_H_CLSACT; an interface
has at most one: ``ingress`` or ``clsact``."""
INGRESS: Final = FRONT_HANDLE | uapi.TC_H_MIN_INGRESS
EGRESS: Final = FRONT_HANDLE | uapi.TC_H_MIN_EGRESS
"""The parents of filters there. Only ``clsact`` has one for outgoing packets."""
_NOT_THERE: Final = (errno.ENOENT, errno.EINVAL, errno.ENODEV)
"""The kernel's errors for an interface that has no place for filters, or is gone."""


class Qdisc(NamedTuple):
    """A queueing discipline."""

    interface: int
    handle: int
    parent: int
    kind: str
    is_shared: bool
    """True if its filters are shared with other interfaces (``ingress_block``)."""


class Filter(NamedTuple):
    """A filter, or the head of the filters of one priority and protocol."""

    info: int
    """Priority of the filter in the high 16 bits, protocol in the low ones."""
    kind: str
    options: bytes
    """Options of the filter; empty in a head."""


def qdiscs(kernel: NetlinkSocket) -> Iterator[Qdisc]:
    """Yield the queueing disciplines of all interfaces. Raises OSError."""
    for body in kernel.dump(uapi.RTM_GETQDISC, HEADER.pack(0, 0, 0, 0, 0)):
        _, interface, handle, parent, _ = HEADER.unpack_from(body)
        found = attributes(body, HEADER.size)
        is_shared = bool(
            number(found.get(uapi.TCA_INGRESS_BLOCK)) or number(found.get(uapi.TCA_EGRESS_BLOCK))
        )
        yield Qdisc(interface, handle, parent, text(found[uapi.TCA_KIND]), is_shared)


def filters(kernel: NetlinkSocket, interface: int, parent: int) -> list[Filter]:
    """Return the filters of an interface at `INGRESS` or `EGRESS`, or of a qdisc.

    Raises OSError.
    """
    with unless_absent():
        bodies = kernel.dump(uapi.RTM_GETTFILTER, HEADER.pack(0, interface, 0, parent, 0))
        found = [(HEADER.unpack_from(body)[4], attributes(body, HEADER.size)) for body in bodies]
        return [
            Filter(info, text(it[uapi.TCA_KIND]), it.get(uapi.TCA_OPTIONS, b""))
            for info, it in found
        ]
    return []


def leaves(kernel: NetlinkSocket, qdisc: Qdisc) -> int:
    """Return the number of a qdisc's classes that have no class below them. Raises OSError."""
    with unless_absent():
        asked = HEADER.pack(0, qdisc.interface, 0, qdisc.handle, 0)
        bodies = kernel.dump(uapi.RTM_GETTCLASS, asked)
        found = [HEADER.unpack_from(body) for body in bodies]
        classes = {handle: parent for _, _, handle, parent, _ in found}
        own = {handle for handle in classes if handle & uapi.TC_H_MAJ_MASK == qdisc.handle}
        return len(own - set(classes.values()))
    return 0


@contextmanager
def unless_absent() -> Iterator[None]:
    """End the block if the kernel answers that the place or the interface does not exist."""
    try:
        yield
    except NetlinkError as error:
        if error.errno not in _NOT_THERE:
            raise
