"""What the kernel announces to all who listen, and calls that follow from it.

A base for the watchers of `facts`, `nft_events` and `shaping.events`, and the filter that keeps
announcements of our own changes from waking this process at all.
"""

from __future__ import annotations

import socket
import struct
from abc import ABC, abstractmethod
from collections.abc import Collection
from types import TracebackType
from typing import Final, Self

from egressd.netd.kernel.follower import Follower
from egressd.netd.kernel.netlink import Listener

# Offsets in struct nlmsghdr, and classic BPF's instructions (linux/filter.h).
_TYPE_AT: Final = 4
_PORT_AT: Final = 12
_LOAD_HALF, _LOAD_WORD, _JUMP_IF_EQUAL, _RETURN = 0x28, 0x20, 0x15, 0x06
_WHOLE, _NOTHING = 0xFFFF_FFFF, 0


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
    of any other type.

    It loads in network byte order what netlink holds in the host's.
    """
    known = sorted(ports)
    code = []
    if kind is not None:
        code += [
            _instruction(_LOAD_HALF, _TYPE_AT),
            _instruction(_JUMP_IF_EQUAL, socket.htons(kind), skip_unless=len(known) + 2),
        ]
    code.append(_instruction(_LOAD_WORD, _PORT_AT))
    for place, port in enumerate(known):
        code.append(_instruction(_JUMP_IF_EQUAL, socket.htonl(port), skip_if=len(known) - place))
    code += [_instruction(_RETURN, _WHOLE), _instruction(_RETURN, _NOTHING)]
    return b"".join(code)


def _instruction(code: int, operand: int, *, skip_if: int = 0, skip_unless: int = 0) -> bytes:
    """``struct sock_filter``: operation, jumps if true and if false, operand."""
    return struct.pack("=HBBI", code, skip_if, skip_unless, operand)
