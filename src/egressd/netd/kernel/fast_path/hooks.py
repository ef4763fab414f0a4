"""Attaches the classifier to interfaces, at the first place that incoming packets reach.

Since Linux 6.6 a program can be attached there by itself (tcx), ahead of all filters. It needs no
qdisc, so SQM and other programs can make theirs beside it. On older kernels the classifier is a
filter (`filters`).
"""

from __future__ import annotations

import errno
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import Final

from egressd.netd.kernel import uapi
from egressd.netd.kernel.ebpf import system
from egressd.netd.kernel.fast_path import filters
from egressd.netd.kernel.netlink import NetlinkSocket

NAME: Final = "egressd"
"""The name of our programs, which distinguishes them from other programs'."""
_LOOPBACK: Final = 1
"""The index of ``lo``, in every network namespace."""
_UNKNOWN_PLACE: Final = (errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP)
REST_S: Final = 5.0
"""Seconds that an interface is left alone after its qdisc for filters went away: a program that
deletes one is likely to make another the next moment, which the kernel would refuse beside ours."""


class Hooks:
    """The classifier's places, of which an interface has one. Methods raise OSError.

    With `has_tcx` false they are filters even if the kernel has tcx.
    """

    def __init__(self, *, has_tcx: bool = True) -> None:
        self._may_have_tcx = has_tcx
        self._fronts = frozenset[int]()
        """Interfaces that had a qdisc for filters at the last look."""
        self._resting: dict[int, float] = {}
        """Interface -> end of its rest, on the monotonic clock."""

    @cached_property
    def has_tcx(self) -> bool:
        """True if the kernel has a place for the classifier that needs no qdisc."""
        if not self._may_have_tcx:
            return False
        try:
            system.attached(_LOOPBACK, uapi.BPF_TCX_INGRESS)
        except OSError as error:
            if error.errno not in _UNKNOWN_PLACE:
                raise
            return False
        return True

    def see(self, fronts: Collection[int]) -> None:
        """Take note of the interfaces that have a qdisc for filters now, ours or another
        program's.
        """
        now = time.monotonic()
        self._resting = {it: until for it, until in self._resting.items() if until > now}
        if not self.has_tcx:
            self._resting |= dict.fromkeys(self._fronts.difference(fronts), now + REST_S)
        self._fronts = frozenset(fronts)

    def is_resting(self, interface: int) -> bool:
        """Return whether nothing may be put on an interface at the moment."""
        return time.monotonic() < self._resting.get(interface, 0)

    def find(self, kernel: NetlinkSocket, interface: int) -> int | None:
        """Return the number of our program on an interface."""
        found = self._attached(interface)
        if found is None and (there := filters.find(kernel, interface)):
            found = there.program
        return found

    def is_last(self, interface: int) -> bool:
        """Return whether other programs that see incoming packets without a filter all precede
        ours.
        """
        if not self.has_tcx:
            return True
        programs = _programs(interface, uapi.BPF_TCX_INGRESS)
        return not programs or programs[-1] == self._attached(interface)

    def put(self, kernel: NetlinkSocket, interface: int, descriptor: int) -> int | None:
        """Put a program on an interface, in place of an earlier one if there is one; return its
        number, or None if it is already gone, as the interface may be.
        """
        with _unless_gone():
            if self.has_tcx:
                there = self._attached(interface)
                if there is not None and not self.is_last(interface):
                    system.detach(interface, there)
                    there = None
                system.attach(interface, descriptor, there)
                filters.take_away(kernel, interface)  # the filter of an earlier version
            else:
                filters.put(kernel, interface, descriptor)
                self._fronts |= {interface}
        return self.find(kernel, interface)

    def take_away(self, kernel: NetlinkSocket, interface: int) -> None:
        """Remove our program from an interface, if it is present."""
        if (there := self._attached(interface)) is not None:
            with _unless_gone():
                system.detach(interface, there)
        filters.take_away(kernel, interface)
        self._fronts -= {interface}

    def has_others_at_egress(self, interface: int) -> bool:
        """Return whether other programs see outgoing packets without a filter."""
        return self.has_tcx and bool(_programs(interface, uapi.BPF_TCX_EGRESS))

    def _attached(self, interface: int) -> int | None:
        if not self.has_tcx:
            return None
        return next(filter(_is_ours, _programs(interface, uapi.BPF_TCX_INGRESS)), None)


@contextmanager
def _unless_gone() -> Iterator[None]:
    """End the block if the interface or its program goes meanwhile: lines' interfaces come and go
    with their connections.
    """
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENODEV, errno.ENOENT):
            raise


def _programs(interface: int, place: int) -> list[int]:
    try:
        return system.attached(interface, place)
    except OSError as error:
        if error.errno != errno.ENODEV:
            raise
        return []


def _is_ours(program: int) -> bool:
    try:
        return system.name_of(program) == NAME
    except FileNotFoundError:  # it has just gone
        return False
