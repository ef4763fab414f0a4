"""What the kernel announces to all who listen, and calls that follow from it.

A base for the watchers of `facts`, `nft_events` and `shaping.events`, and the filter that keeps
announcements of our own changes from waking this process at all.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection
from types import TracebackType
from typing import Self

from egressd.netd.bpf import PORT_AT, TYPE_AT, Check, any_of
from egressd.netd.kernel.follower import Follower
from egressd.netd.kernel.netlink import Listener


class Announcements(ABC):
    """Listens, and makes a call soon after what it heard.

    See `Follower` for how often it calls. An asynchronous context manager: it watches from
    entering to leaving.
    """

    async def __aenter__(self) -> Self:
        self._follower = Follower(self._call)
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
    def _listen(self) -> Listener:
        """Begin to listen; what is heard and matters goes to ``self._follower.tell()``."""

    @abstractmethod
    async def _call(self) -> None:
        """What follows."""


def not_from(ports: Collection[int], kind: int | None = None) -> bytes:
    """Classic BPF that drops what the netlink ports `ports` caused, and, with `kind`, messages
    of any other type."""
    checks = [Check("I", PORT_AT, "is not", port) for port in sorted(ports)]
    if kind is not None:
        checks.insert(0, Check("H", TYPE_AT, "is", kind))
    return any_of([checks])
