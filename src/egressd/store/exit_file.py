"""The last known exits, in a file of their own: a restored backup does not bring back old ones.

They are watched, not configured. So a file that is damaged is begun anew, and one that cannot be
written is reported in the log alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path

import msgspec
import structlog

from egressd.model.exits import KnownExit
from egressd.store.files import replace_durably

log = structlog.get_logger()


class ExitFile:
    """The exits by the keys of their targets."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / "exits.json"
        self._lock = asyncio.Lock()

    async def load(self) -> Mapping[str, KnownExit]:
        """Return what was saved last; nothing if that cannot be read."""
        return await asyncio.to_thread(self._read)

    async def save(self, known: Mapping[str, KnownExit]) -> None:
        """Replace what is stored, durably."""
        # A cancelled caller must not release the lock while the file is being written.
        await asyncio.shield(self._save(known))

    async def _save(self, known: Mapping[str, KnownExit]) -> None:
        async with self._lock:
            try:
                await asyncio.to_thread(replace_durably, self._path, msgspec.json.encode(known))
            except OSError as error:
                log.warning("cannot store the exits", error=error.strerror or str(error))

    def _read(self) -> Mapping[str, KnownExit]:
        try:
            return msgspec.json.decode(self._path.read_bytes(), type=dict[str, KnownExit])
        except FileNotFoundError:
            return {}
        except (OSError, ValueError) as error:
            log.warning("the stored exits are unreadable, and begun anew", error=str(error))
            return {}
