"""Records of what a box has seen, each in a small file beside the state's: exits, alerts, fetches.

It is watched, not configured: a restored backup does not bring back an old one. So a file that is
damaged is begun anew, and one that cannot be written is reported in the log alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any, Generic, TypeVar

import msgspec
import structlog

from egressd.model.wording import decoded, encoded
from egressd.store.files import replace_durably

log = structlog.get_logger()

K = TypeVar("K")


class RecordFile(Generic[K]):
    """One value of the type `kind` as JSON. `called` is the word for it in the log."""

    def __init__(self, path: Path, kind: Callable[[], K], called: str) -> None:
        self._path = path
        self._kind: Any = kind
        self._called = called
        self._lock = asyncio.Lock()

    async def load(self) -> K:
        """Return what was saved last; an empty one if that cannot be read."""
        return await asyncio.to_thread(self._read)

    async def save(self, value: K) -> None:
        """Replace what is stored, durably, if it can be written."""
        await self.store(value)

    async def store(self, value: K) -> bool:
        """Replace what is stored, durably; return whether it could be written."""
        content = msgspec.json.encode(value, enc_hook=encoded)
        # A cancelled caller must not release the lock while the file is being written.
        return await asyncio.shield(self._save(content))

    async def _save(self, content: bytes) -> bool:
        async with self._lock:
            try:
                await asyncio.to_thread(replace_durably, self._path, content)
            except OSError as error:
                log.warning(
                    "cannot store a record", of=self._called, error=error.strerror or str(error)
                )
                return False
        return True

    def _read(self) -> K:
        try:
            content = self._path.read_bytes()
            found: K = msgspec.json.decode(content, type=self._kind, dec_hook=decoded)
        except FileNotFoundError:
            found = self._kind()
        except (OSError, ValueError) as error:
            log.warning(
                "a stored record is unreadable, and begun anew", of=self._called, error=str(error)
            )
            found = self._kind()
        return found
