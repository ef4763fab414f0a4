"""The next free port of a range. Pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence


class PortRange:
    """The ports of a range, handed out in turn, so that a port just freed rests the longest.

    `full` is the error's text when no port is free; `first` is the index of the first port to hand
    out.
    """

    def __init__(self, ports: Sequence[int], full: str, *, first: int = 0) -> None:
        self._ports = ports
        self._full = full
        self._next = first
        self._taken: set[int] = set()

    def take(self, avoided: Collection[int] = ()) -> int:
        """Take a free port that is not in `avoided`. Raises LookupError if there is none."""
        for _ in range(len(self._ports)):
            port = self._ports[self._next]
            self._next = (self._next + 1) % len(self._ports)
            if port not in self._taken and port not in avoided:
                self._taken.add(port)
                return port
        raise LookupError(self._full)

    def claim(self, port: int) -> None:
        """Note that `port` is in use."""
        self._taken.add(port)

    def give_back(self, port: int) -> None:
        """Note that `port` is free again."""
        self._taken.discard(port)
