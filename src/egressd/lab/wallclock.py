"""A wall clock that jumps, for programs of the lab alone.

Linux has one wall clock for all namespaces (time_namespaces(7) has the monotonic ones only), so
programs are given theirs by libfaketime, which stands between them and the C library. Programs
that don't ask the C library, such as Go's, keep the machine's.
"""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Final

from egressd.model.errors import Failed

_LIBRARIES: Final = Path("/usr/lib")
_NAME: Final = "*/faketime/libfaketime.so.1"
READ_AFTER_S: Final = 2
"""How long programs may take to notice a jump, in seconds: they look once a second."""


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
        """What programs have to be started with."""
        self.set(timedelta())

    def set(self, offset: timedelta) -> None:
        """From now on it is so much later than the machine's, or earlier."""
        fresh = self._file.with_suffix(".new")
        fresh.write_text(f"{offset.total_seconds():+.0f}")
        fresh.chmod(0o644)  # a program of another user reads it too
        fresh.replace(self._file)
