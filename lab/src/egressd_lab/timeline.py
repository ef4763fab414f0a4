"""Downloads of several clients, watched tick by tick."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import ClassVar, Final, Self

from egressd_lab.client import Client, Download
from egressd_lab.observed import Progress
from egressd_lab.scenes import Held
from egressd_lab.spec import WEB_SERVERS

PAUSE_MAX: Final = 1.0
"""Seconds without a byte that count as a cut, in a download that gets bytes every 0.05 s. The
delays of a busy small machine alone reach 0.2 s.
"""
_LINES: Final = 10_000


class Timeline:
    """A context manager: begins a slow download for each client, ends them all."""

    TICK: ClassVar = 0.1
    """Seconds of a tick."""

    def __init__(self, clients: Sequence[tuple[Client, str]]) -> None:
        self._clients = clients
        self._downloads: dict[str, Download] = {}
        self._traces: dict[str, str] = {client.name: "" for client, _ in clients}
        self._last: dict[str, Progress] = {}
        self.ticks = 0

    def __enter__(self) -> Self:
        try:
            for client, _ in self._clients:
                url = f"http://{WEB_SERVERS[0]}/drip/{_LINES}"
                self._downloads[client.name] = client.download(url)
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()

    def watch(self, seconds: float) -> None:
        """Read the progress of every download once a tick, for `seconds`."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            time.sleep(self.TICK)
            self.ticks += 1
            for name, download in self._downloads.items():
                self._look(name, download.progress())

    def held(self, subject: Client) -> list[Held]:
        """Return the fate of each download. `subject`'s should have been cut, all others not."""
        rows = []
        for client, target in self._clients:
            progress = self._last[client.name]
            is_subject = client is subject
            was_cut = progress.finished or progress.longest_pause > PAUSE_MAX
            rows.append(
                Held(
                    client=client.name,
                    target=target,
                    trace=self._traces[client.name],
                    received=progress.received,
                    error=progress.error,
                    longest_pause=progress.longest_pause,
                    is_subject=is_subject,
                    ok=was_cut == is_subject,
                )
            )
        return rows

    def _look(self, name: str, progress: Progress) -> None:
        before = self._last.get(name)
        if progress.finished:
            letter = "x"
        elif before is None or progress.received > before.received:
            letter = "#"
        else:
            letter = "."
        self._traces[name] += letter
        self._last[name] = progress

    def _stop(self) -> None:
        for download in self._downloads.values():
            download.stop()
        self._downloads.clear()
