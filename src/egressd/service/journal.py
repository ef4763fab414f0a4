"""The record of changes, with their authors and times. Written shortly after the changes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final, Protocol

import structlog

from egressd.model.console import ChangeRecord
from egressd.model.errors import Failed
from egressd.model.messages import Event
from egressd.model.wording import as_sentence

log = structlog.get_logger()

_GATHER_S: Final = 0.5
"""Seconds within which changes are gathered and written at once."""
_ASK_AGAIN_MAX_S: Final = 60.0
_WAITING_MAX: Final = 1000
"""Records kept while the disk refuses them; beyond that the oldest are lost."""
_TEXT_MAX: Final = 500


class ChangeStore(Protocol):
    """The storage of records. Every method raises Failed."""

    async def add_changes(self, records: Sequence[ChangeRecord]) -> None:
        """Add records, and delete the oldest ones."""
        ...

    async def changes(self, limit: int) -> list[ChangeRecord]:
        """Return the latest records, the last one first."""
        ...


class Journal:
    """Takes records and writes them in batches; publishes events at once."""

    def __init__(self, store: ChangeStore, publish: Callable[[Event], None]) -> None:
        self._store = store
        self._publish = publish
        self._waiting: list[ChangeRecord] = []
        self._writing: asyncio.Task[None] | None = None
        self._turn = asyncio.Lock()

    def note(self, record: ChangeRecord, subject: str = "") -> None:
        """Add a record. With `subject`, the kind of thing that changed, publish an event."""
        if len(record.text) > _TEXT_MAX:
            record = ChangeRecord(
                at=record.at,
                who=record.who,
                source=record.source,
                what=record.what,
                text=as_sentence(f"{record.text[:_TEXT_MAX]}…"),
                revision=record.revision,
            )
        self._waiting = [*self._waiting[1 - _WAITING_MAX :], record]
        if subject:
            values = {"who": record.who, "what": record.what, "text": record.text}
            self._publish(
                Event(
                    topic="change",
                    subject=subject,
                    text=str(record.text),
                    code="changed",
                    values=values,
                )
            )
        if self._writing is None or self._writing.done():
            self._writing = asyncio.get_running_loop().create_task(self._write_soon())

    async def latest(self, limit: int) -> list[ChangeRecord]:
        """Return the latest records, the last one first. Raises Failed."""
        await self.flush()
        return await self._store.changes(limit)

    async def flush(self) -> None:
        """Write waiting records. If the disk refuses, log it and keep them for the next attempt."""
        async with self._turn:
            records, self._waiting = self._waiting, []
            if not records:
                return
            try:
                await self._store.add_changes(records)
            except Failed as error:
                log.error("cannot record changes", number=len(records), error=str(error))
                self._waiting = [*records, *self._waiting][-_WAITING_MAX:]

    async def close(self) -> None:
        """Write waiting records, and stop."""
        if self._writing is not None:
            self._writing.cancel()
        await self.flush()

    async def _write_soon(self) -> None:
        delay = _GATHER_S
        while self._waiting:
            await asyncio.sleep(delay)
            await self.flush()
            delay = min(2 * delay, _ASK_AGAIN_MAX_S)
