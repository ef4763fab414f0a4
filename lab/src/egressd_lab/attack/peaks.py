"""The largest memory of each part of egressd, early and late in a run: it must not keep growing."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Final

from egressd_lab.process import resident

_ALLOWED: Final = 1.05
_ALLOWED_BYTES: Final = 5 << 20
_LEAST_S: Final = 600.0
"""Seconds of the shortest run that can show growth."""


class Peaks:
    """Samples of each part's largest process."""

    def __init__(self) -> None:
        self._samples: dict[str, list[tuple[float, int]]] = {}

    def look(self, parts: Mapping[str, Sequence[int]]) -> None:
        """Take a sample. `parts`: name -> process ids."""
        now = time.monotonic()
        for part, pids in parts.items():
            if pids:
                most = max(map(resident, pids))
                self._samples.setdefault(part, []).append((now, most))

    def summary(self) -> dict[str, tuple[int, int]]:
        """Return part -> its peak in the first and in the last third of the time, in bytes."""
        found = {}
        for part, samples in self._samples.items():
            begin, end = samples[0][0], samples[-1][0]
            third = (end - begin) / 3
            early = max(size for at, size in samples if at <= begin + third)
            late = max(size for at, size in samples if at >= end - third)
            found[part] = early, late
        return found

    def breaches(self) -> list[str]:
        """Return the parts that have grown by more than a twentieth and 5 MiB."""
        return [
            f"{part} grew from {early >> 20} to {late >> 20} MiB"
            for part, (early, late) in self.summary().items()
            if self._samples[part][-1][0] - self._samples[part][0][0] >= _LEAST_S
            and late > early * _ALLOWED + _ALLOWED_BYTES
        ]
