"""The alerts that wait, and the last messages, in a file of their own: they are this box's.

A file that is damaged is begun anew, and one that cannot be written is reported in the log alone.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Generic, TypeVar

import msgspec
import structlog

from egressd.model.wording import decoded, encoded
from egressd.store.files import replace_durably

log = structlog.get_logger()

K = TypeVar("K", bound=msgspec.Struct)


class AlertFile(Generic[K]):
    """The alerts that a box keeps, as one struct of the type `kind`."""

    def __init__(self, directory: Path, kind: type[K]) -> None:
        self._path = directory / "alerts.json"
        self._kind = kind
        self._lock = asyncio.Lock()

    async def load(self) -> K:
        """Return what was saved last; an empty one if that cannot be read."""
        return await asyncio.to_thread(self._read)

    async def save(self, kept: K) -> None:
        """Replace what is stored, durably."""
        content = msgspec.json.encode(kept, enc_hook=encoded)
        # A cancelled caller must not release the lock while the file is being written.
        await asyncio.shield(self._save(content))

    async def _save(self, content: bytes) -> None:
        async with self._lock:
            try:
                await asyncio.to_thread(replace_durably, self._path, content)
            except OSError as error:
                log.warning("cannot store the alerts", error=error.strerror or str(error))

    def _read(self) -> K:
        try:
            return msgspec.json.decode(self._path.read_bytes(), type=self._kind, dec_hook=decoded)
        except FileNotFoundError:
            return self._kind()
        except (OSError, ValueError) as error:
            log.warning("the stored alerts are unreadable, and begun anew", error=str(error))
            return self._kind()
