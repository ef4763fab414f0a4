"""The record of changes: who made which, when. Written beside the changes, a moment later."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final, Protocol

import structlog

from egressd.model.console import ChangeRecord
from egressd.model.errors import Failed
from egressd.model.messages import Event

log = structlog.get_logger()

_GATHER_S: Final = 0.5
"""Changes that follow each other so closely are written at once."""
_ASK_AGAIN_MAX_S: Final = 60.0
_WAITING_MAX: Final = 1000
"""While the disk will not have them; the oldest are lost then."""
_TEXT_MAX: Final = 500


class ChangeStore(Protocol):
    """Where records are kept. Every method raises Failed."""

    async def add_changes(self, records: Sequence[ChangeRecord]) -> None:
        """Add records, and forget what is too old."""
        ...

    async def changes(self, limit: int) -> list[ChangeRecord]:
        """The latest records first."""
        ...


class Journal:
    """Takes records and writes them in batches; tells listeners at once."""

    def __init__(self, store: ChangeStore, publish: Callable[[Event], None]) -> None:
        self._store = store
        self._publish = publish
        self._waiting: list[ChangeRecord] = []
        self._writing: asyncio.Task[None] | None = None
        self._turn = asyncio.Lock()

    def note(self, record: ChangeRecord, subject: str = "") -> None:
        """Add a record. With `subject`, the kind of thing that changed, listeners are told."""
        if len(record.text) > _TEXT_MAX:
            record = ChangeRecord(
                at=record.at,
                who=record.who,
                source=record.source,
                what=record.what,
                text=f"{record.text[:_TEXT_MAX]}…",
            )
        self._waiting = [*self._waiting[1 - _WAITING_MAX :], record]
        if subject:
            self._publish(Event(topic="change", subject=subject, text=record.text))
        if self._writing is None or self._writing.done():
            self._writing = asyncio.get_running_loop().create_task(self._write_soon())

    async def latest(self, limit: int) -> list[ChangeRecord]:
        """The latest records, the last one first. Raises Failed."""
        await self.flush()
        return await self._store.changes(limit)

    async def flush(self) -> None:
        """Write what waits. A disk that will not is told of in the log, and asked again."""
        async with self._turn:
            records, self._waiting = self._waiting, []
            if not records:
                return
            try:
                await self._store.add_changes(records)
            except Failed as error:
                log.error("changes could not be recorded", number=len(records), error=str(error))
                self._waiting = [*records, *self._waiting][-_WAITING_MAX:]

    async def close(self) -> None:
        """Write what waits, and stop."""
        if self._writing is not None:
            self._writing.cancel()
        await self.flush()

    async def _write_soon(self) -> None:
        delay = _GATHER_S
        while self._waiting:
            await asyncio.sleep(delay)
            await self.flush()
            delay = min(2 * delay, _ASK_AGAIN_MAX_S)
