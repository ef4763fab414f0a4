"""Resident memory of egressd's parts over a run: flat, or a breach."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Final

from egressd_lab.chaos.judge import Breach
from egressd_lab.process import resident

_MIB: Final = 1 << 20
_SAMPLES_MIN: Final = 40
"""Samples that are needed to judge growth."""
_ALLOWED: Final = 1.25
_ALLOWED_MIB: Final = 16


class Memory:
    """Samples of each part, each taken when the device has come to rest."""

    def __init__(self) -> None:
        self._samples: dict[str, list[int]] = {}

    def look(self, parts: Mapping[str, Sequence[int]]) -> None:
        """Take a sample. `parts`: name -> process ids; the sum of all is what counts."""
        for part, pids in parts.items():
            self._samples.setdefault(part, []).append(sum(map(resident, pids)))

    def summary(self) -> dict[str, tuple[int, int]]:
        """Return part -> MiB in the first and in the last quarter, as medians."""
        return {
            part: (_mib(samples[: len(samples) // 4 + 1]), _mib(samples[-len(samples) // 4 :]))
            for part, samples in self._samples.items()
        }

    def breaches(self) -> list[Breach]:
        """Return a breach for each part that grew by more than a quarter and 16 MiB."""
        return [
            Breach(promise="memory", what=f"{part} grew from {before} to {after} MiB")
            for part, (before, after) in self.summary().items()
            if len(self._samples[part]) >= _SAMPLES_MIN and after > before * _ALLOWED + _ALLOWED_MIB
        ]


def _mib(samples: Sequence[int]) -> int:
    return round(median(samples) / _MIB)
