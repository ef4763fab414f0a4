"""A wall clock that jumps, for programs of the lab alone.

Linux has one wall clock for all namespaces (time_namespaces(7) has the monotonic ones only), so
programs get theirs from libfaketime, which stands between them and the C library. Programs that do
not use the C library for it, such as Go's, keep the machine's clock.
"""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Final

from egressd.model.errors import Failed

_LIBRARIES: Final = Path("/usr/lib")
_NAME: Final = "*/faketime/libfaketime.so.1"
READ_AFTER_S: Final = 2
"""Seconds that programs may take to notice a jump: they check once a second."""


class WallClock:
    """The clock of programs started with its `environment`. Raises Failed without libfaketime."""

    def __init__(self, file: Path) -> None:
        library = next(_LIBRARIES.glob(_NAME), None)
        if library is None:
            raise Failed("move the wall clock", "libfaketime is missing (script/setup --dev)")
        self._file = file
        self.environment = {
            "LD_PRELOAD": str(library),
            "FAKETIME_TIMESTAMP_FILE": str(file),
            "FAKETIME_CACHE_DURATION": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "FAKETIME_DISABLE_SHM": "1",
        }
        """The environment variables that programs have to be started with."""
        self.set(timedelta())

    def set(self, offset: timedelta) -> None:
        """Set the clock's offset from the machine's, from now on; it may be negative."""
        fresh = self._file.with_suffix(".new")
        fresh.write_text(f"{offset.total_seconds():+.0f}")
        fresh.chmod(0o644)  # a program of another user reads it too
        fresh.replace(self._file)
