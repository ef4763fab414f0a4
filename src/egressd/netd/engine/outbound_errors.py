"""The outbounds through which connections fail, from the log of a worker's instances.

All instances that serve clients log to one pipe. The log is passed on to the worker's own log, and
the tags of outbounds with errors are kept until netd asks for them.
"""

from __future__ import annotations

import asyncio
import errno
import os
import re
from contextlib import suppress
from typing import Final

_DESCRIPTOR: Final = 3  # number of the pipe, which documents name
LOG_OUTPUT: Final = f"/proc/self/fd/{_DESCRIPTOR}"
"""The ``log.output`` of documents: the pipe, once `OutboundErrors` is open."""

_READ_BYTES: Final = 65_536
_FAILURE: Final = re.compile(rb"using outbound/[^\[\s]+\[([^\]\s]+)\]: ")
"""The pattern of sing-box's ``route/conn.go``; `egressd.netd.engine.batch` reads the same."""

_OF_THE_WORKER: Final = os.strerror(errno.EMFILE).lower().encode()
"""The error of the Go runtime when a process has too many open files."""


def reserve() -> None:
    """Keep the descriptor free, in a process that has no other than the standard ones yet."""
    descriptor = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    if descriptor != _DESCRIPTOR:
        os.dup2(descriptor, _DESCRIPTOR, inheritable=False)
        os.close(descriptor)


class OutboundErrors:
    """The pipe, and the tags that came through it.

    Made after the worker became its user, which could not open root's pipe by `LOG_OUTPUT`.
    """

    def __init__(self) -> None:
        self._tags: set[bytes] = set()
        self._asked: asyncio.Future[None] | None = None

    def open(self) -> None:
        """Make the pipe, in place of the descriptor that `reserve` put there."""
        reader, writer = os.pipe()
        os.set_blocking(reader, False)
        os.dup2(writer, _DESCRIPTOR, inheritable=False)
        os.close(writer)
        asyncio.get_running_loop().add_reader(reader, self._read, reader)

    async def next(self) -> tuple[str, ...]:
        """Wait until there is trouble; return the tags of all errors since the last call.

        An earlier call that still waits gets none: its caller is gone.
        """
        self._answer()
        asked = self._asked = asyncio.get_running_loop().create_future()
        if self._tags:
            self._answer()
        await asked
        if self._asked is not asked:
            return ()
        tags, self._tags = self._tags, set()
        return tuple(sorted(tag.decode(errors="replace") for tag in tags))

    def _read(self, reader: int) -> None:
        text = os.read(reader, _READ_BYTES)
        # An exhausted descriptor limit of the worker is not a fault of its nodes.
        lines = (line for line in text.splitlines() if _OF_THE_WORKER not in line)
        if tags := set(_FAILURE.findall(b"\n".join(lines))):
            self._tags |= tags
            self._answer()
        with suppress(OSError):  # the disk that the log is on may be full
            os.write(2, text)

    def _answer(self) -> None:
        if self._asked is not None and not self._asked.done():
            self._asked.set_result(None)
