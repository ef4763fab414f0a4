"""Kernel multicast announcements, and the calls that follow from them.

A base for the watchers of `machine_facts`, `nft_events` and `tc.events`, and the filter that keeps
announcements of our own changes from waking this process at all.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection
from types import TracebackType
from typing import Self

from egressd.netd.kernel.classic_bpf import PORT_AT, TYPE_AT, Check, any_of
from egressd.netd.kernel.debounce import Debouncer
from egressd.netd.kernel.netlink import NetlinkListener


class EventWatcher(ABC):
    """Listens, and makes a call soon after an announcement.

    See `Debouncer` for the pace of the calls. An asynchronous context manager: it watches from
    entering to leaving.
    """

    async def __aenter__(self) -> Self:
        self._follower = Debouncer(self._call)
        self._listener = self._listen()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._listener.close()
        await self._follower.close()

    @abstractmethod
    def _listen(self) -> NetlinkListener:
        """Begin to listen; pass each relevant event on to ``self._follower.notify()``."""

    @abstractmethod
    async def _call(self) -> None:
        """Handle the events since the last call."""


def not_from(ports: Collection[int], kind: int | None = None) -> bytes:
    """Return classic BPF that drops messages caused by the netlink ports `ports` and, if `kind` is
    given, messages of any other type.
    """
    checks = [Check("I", PORT_AT, "is not", port) for port in sorted(ports)]
    if kind is not None:
        checks.insert(0, Check("H", TYPE_AT, "is", kind))
    return any_of([checks])
