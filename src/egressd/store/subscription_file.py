"""The records of subscriptions' lists, in a file of their own: they are this box's.

A file that is damaged is begun anew, and one that cannot be written is reported in the log alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path

import msgspec
import structlog

from egressd.model.subscriptions import FetchRecord
from egressd.model.wording import decoded, encoded
from egressd.store.files import replace_durably

log = structlog.get_logger()


class SubscriptionFile:
    """The records of lists by the ids of their subscriptions."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / "subscriptions.json"
        self._lock = asyncio.Lock()

    async def load(self) -> Mapping[int, FetchRecord]:
        """Return what was saved last; nothing if that cannot be read."""
        return await asyncio.to_thread(self._read)

    async def save(self, known: Mapping[int, FetchRecord]) -> None:
        """Replace what is stored, durably."""
        content = msgspec.json.encode(known, enc_hook=encoded)
        # A cancelled caller must not release the lock while the file is being written.
        await asyncio.shield(self._save(content))

    async def _save(self, content: bytes) -> None:
        async with self._lock:
            try:
                await asyncio.to_thread(replace_durably, self._path, content)
            except OSError as error:
                log.warning("cannot store the subscriptions", error=error.strerror or str(error))

    def _read(self) -> Mapping[int, FetchRecord]:
        try:
            return msgspec.json.decode(
                self._path.read_bytes(), type=dict[int, FetchRecord], dec_hook=decoded
            )
        except FileNotFoundError:
            return {}
        except (OSError, ValueError) as error:
            log.warning("the stored subscriptions are unreadable, and begun anew", error=str(error))
            return {}
