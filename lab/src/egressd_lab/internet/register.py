"""A record of all requests that the servers received, in order."""

from __future__ import annotations

import time
from collections import deque
from itertools import islice
from typing import Any, Final

from egressd_lab.observed import Seen

KEPT: Final = 500_000
"""Entries kept; older ones are dropped."""
TEXT_MAX: Final = 200


class Register:
    """An append-only list with positions, so that a reader can request only new entries."""

    def __init__(self) -> None:
        self._entries: deque[Seen] = deque(maxlen=KEPT)
        self._count = 0

    def note(self, service: str, server: Any, peer: Any, text: str) -> None:
        """Add a request; `server` and `peer` are socket addresses (address, port, …)."""
        entry = Seen(
            time=time.time(),
            service=service,
            server=server[0],
            port=server[1],
            source=peer[0],
            source_port=peer[1],
            text=text[:TEXT_MAX],
        )
        self._entries.append(entry)
        self._count += 1

    def mark(self) -> int:
        """Return the position behind the last entry."""
        return self._count

    def since(self, mark: int, service: str, text: str) -> list[Seen]:
        """Return entries from position `mark` on, of `service` and with `text` in them if given."""
        first = self._count - len(self._entries)
        return [
            entry
            for entry in islice(self._entries, max(0, mark - first), None)
            if (not service or entry.service == service) and (not text or text in entry.text)
        ]
