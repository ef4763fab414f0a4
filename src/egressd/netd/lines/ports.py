"""The local UDP ports of L2TP lines."""

from __future__ import annotations

import random

from egressd.netd.lines.diagnosis import Cause, Failure


class Ports:
    """Those of one range, which the lines in `use` share, a port for each."""

    def __init__(self, ports: range, use: str) -> None:
        self._all = ports
        self._use = use
        self._taken: set[int] = set()
        self._turn = random.randrange(len(ports))  # noqa: S311 (chance, no secret)

    def take(self) -> int:
        """A port for one line. Raises Failure when all are taken.

        They are given out in turn: a server that has not noticed a session's end
        would take what comes from its port for a part of it (Linux's L2TP connects a UDP socket
        for each tunnel), and the new session would stay silent.
        """
        for _ in self._all:
            self._turn = (self._turn + 1) % len(self._all)
            port = self._all[self._turn]
            if port not in self._taken:
                self._taken.add(port)
                return port
        raise Failure(Cause.FAILED, f"no more than {len(self._all)} {self._use}")

    def keep(self, port: int) -> None:
        """A line has the port already, from an earlier netd."""
        self._taken.add(port)

    def give_back(self, port: int) -> None:
        """No line uses the port any more."""
        self._taken.discard(port)
