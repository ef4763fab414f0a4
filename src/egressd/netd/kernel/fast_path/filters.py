"""Attaches the classifier to an interface as a filter (tc-bpf(8)), for kernels before 6.6.

A filter needs a qdisc of kind ``ingress``, and an interface has one at most. SQM's scripts and
other programs delete the present one, including ours, and make their own. So our qdisc is of just
that kind; and one that already exists is used and never removed.
"""

from __future__ import annotations

import errno
import socket
from typing import Final, NamedTuple

from egressd.netd.kernel import traffic_control as tc
from egressd.netd.kernel import uapi
from egressd.netd.kernel.netlink import (
    NetlinkError,
    NetlinkSocket,
    attribute,
    attributes,
    nest,
    number,
    text,
    u32,
)
from egressd.planner.registry import FAST_PATH_PREFERENCE

_PROTOCOL_IP: Final = socket.htons(uapi.ETH_P_IP)
_INFO: Final = FAST_PATH_PREFERENCE << 16 | _PROTOCOL_IP
_HANDLE: Final = 1  # of the only filter with this preference
_KIND: Final = uapi.TCA_KIND, b"bpf\0"
_AT_HOME, _AS_GUEST = "egressd", "egressd-guest"
"""Names that show the qdisc's owner, also to a later netd: egressd, or another program."""


class Ours(NamedTuple):
    """Our filter on an interface."""

    name: str
    program: int
    """The kernel's number of its program."""


def find(kernel: NetlinkSocket, interface: int) -> Ours | None:
    """Return our filter on an interface. Raises OSError."""
    return next(filter(None, map(_read, tc.filters(kernel, interface, tc.INGRESS))), None)


def others(kernel: NetlinkSocket, interface: int, parent: int) -> list[tc.Filter]:
    """Return the filters of other programs at a place. Raises OSError."""
    found = tc.filters(kernel, interface, parent)
    ours = parent == tc.INGRESS and any(map(_read, found))
    return [it for it in found if not (ours and (_read(it) or it == _HEAD))]


def put(kernel: NetlinkSocket, interface: int, descriptor: int) -> None:
    """Put a program on an interface, in place of an earlier one if there is one.

    Raises OSError.
    """
    there = find(kernel, interface)
    front = _front(kernel, interface)
    if there is not None and there.name == _AT_HOME and front == "clsact":
        take_away(kernel, interface)  # earlier versions put it there
        there, front = None, _front(kernel, interface)
    name = there.name if there else _AS_GUEST
    if not front:
        body = tc.HEADER.pack(0, interface, tc.FRONT_HANDLE, uapi.TC_H_CLSACT, 0)
        try:
            kernel.request(
                uapi.RTM_NEWQDISC,
                body + attribute(uapi.TCA_KIND, b"ingress\0"),
                uapi.NLM_F_CREATE | uapi.NLM_F_EXCL,
            )
            name = _AT_HOME
        except NetlinkError as error:
            if error.errno != errno.EEXIST:
                raise
    options = nest(
        uapi.TCA_OPTIONS,
        attribute(uapi.TCA_BPF_FD, u32(descriptor)),
        attribute(uapi.TCA_BPF_NAME, name.encode() + b"\0"),
        attribute(uapi.TCA_BPF_FLAGS, u32(uapi.TCA_BPF_FLAG_ACT_DIRECT)),
    )
    kernel.request(
        uapi.RTM_NEWTFILTER, _which(interface) + options, uapi.NLM_F_CREATE | uapi.NLM_F_REPLACE
    )


def take_away(kernel: NetlinkSocket, interface: int) -> None:
    """Remove our program from an interface, if it is present, and the qdisc if it is ours and has
    no other filters. Raises OSError.
    """
    there = find(kernel, interface)
    if there is None:
        return
    with tc.unless_absent():
        kernel.request(uapi.RTM_DELTFILTER, _which(interface))
    front = _front(kernel, interface)
    places = (tc.INGRESS, tc.EGRESS) if front == "clsact" else (tc.INGRESS,)
    if there.name == _AT_HOME and not any(tc.filters(kernel, interface, it) for it in places):
        with tc.unless_absent():
            body = tc.HEADER.pack(0, interface, tc.FRONT_HANDLE, uapi.TC_H_CLSACT, 0)
            kernel.request(uapi.RTM_DELQDISC, body)


def _front(kernel: NetlinkSocket, interface: int) -> str:
    """Return the kind of the qdisc that filters need; empty if there is none."""
    found = (it for it in tc.qdiscs(kernel) if it.interface == interface)
    return next((it.kind for it in found if it.parent == uapi.TC_H_CLSACT), "")


def _which(interface: int) -> bytes:
    return tc.HEADER.pack(0, interface, _HANDLE, tc.INGRESS, _INFO) + attribute(*_KIND)


_HEAD: Final = tc.Filter(_INFO, "bpf", b"")


def _read(found: tc.Filter) -> Ours | None:
    options = attributes(found.options)
    if (found.info, found.kind) != (_HEAD.info, _HEAD.kind) or uapi.TCA_BPF_ID not in options:
        return None
    name = text(options.get(uapi.TCA_BPF_NAME, b""))
    return Ours(name, number(options[uapi.TCA_BPF_ID])) if name in (_AT_HOME, _AS_GUEST) else None
