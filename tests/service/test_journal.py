"""The record of changes: in batches, bounded, and never blocking."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
import structlog

from egressd.model.console import ChangeRecord
from egressd.model.errors import Failed
from egressd.model.messages import Event
from egressd.model.wording import as_sentence
from egressd.service.journal import Journal


class Disk:
    """A store that can be full."""

    def __init__(self) -> None:
        self.has_written = asyncio.Event()
        self.batches: list[list[str]] = []
        self.is_full = False

    async def add_changes(self, records: Sequence[ChangeRecord]) -> None:
        if self.is_full:
            raise Failed("record a change", "disk full")
        self.batches.append([record.text for record in records])
        self.has_written.set()

    async def changes(self, limit: int) -> list[ChangeRecord]:
        texts = [text for batch in self.batches for text in batch]
        return [record(text) for text in reversed(texts)][:limit]


def record(text: str) -> ChangeRecord:
    return ChangeRecord(
        at="", who="token", source="192.0.2.7", what="POST /x", text=as_sentence(text)
    )


async def test_consecutive_changes_are_written_in_one_batch() -> None:
    disk, told = Disk(), list[Event]()
    journal = Journal(disk, told.append)
    journal.note(record("a"), "rules")
    journal.note(record("b"))
    assert disk.batches == []
    (event,) = told
    assert (event.topic, event.subject, event.text) == ("change", "rules", "a")
    assert (event.code, event.values) == (
        "changed",
        {
            "who": "token",
            "what": "POST /x",
            "text": "a",
        },
    )
    await asyncio.wait_for(disk.has_written.wait(), 5)
    assert disk.batches == [["a", "b"]]
    journal.note(record("c"))
    await journal.close()
    assert disk.batches == [["a", "b"], ["c"]]


async def test_reading_includes_records_that_are_not_written_yet() -> None:
    journal = Journal(Disk(), lambda _: None)
    journal.note(record("a"))
    journal.note(record("b"))
    assert [r.text for r in await journal.latest(1)] == ["b"]
    await journal.close()


async def test_a_full_disk_loses_only_the_oldest_records() -> None:
    disk = Disk()
    journal = Journal(disk, lambda _: None)
    disk.is_full = True
    with structlog.testing.capture_logs() as logged:
        for number in range(1500):
            journal.note(record(str(number)))
            if number == 700:
                await journal.flush()
        await journal.flush()
    assert {entry["log_level"] for entry in logged} == {"error"}
    disk.is_full = False
    await journal.flush()
    (batch,) = disk.batches
    assert batch == [str(number) for number in range(500, 1500)]
    await journal.close()


async def test_a_failed_write_is_repeated_without_another_change(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("egressd.service.journal._GATHER_S", 0.02)
    disk = Disk()
    disk.is_full = True
    journal = Journal(disk, lambda _: None)
    with structlog.testing.capture_logs() as logged:
        journal.note(record("a"))
        while len(logged) < 2:  # noqa: ASYNC110 (a log sets no event)
            await asyncio.sleep(0.005)
    disk.is_full = False
    await asyncio.wait_for(disk.has_written.wait(), 5)
    assert disk.batches == [["a"]]
    await journal.close()


async def test_records_added_during_a_write_are_written_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("egressd.service.journal._GATHER_S", 0.02)

    class Slow(Disk):
        async def add_changes(self, records: Sequence[ChangeRecord]) -> None:
            await super().add_changes(records)
            if len(self.batches) == 1:
                journal.note(record("b"))

    disk = Slow()
    journal = Journal(disk, lambda _: None)
    journal.note(record("a"))
    async with asyncio.timeout(5):
        while len(disk.batches) < 2:  # noqa: ASYNC110 (the event is set by the first one)
            await asyncio.sleep(0.005)
    assert disk.batches == [["a"], ["b"]]
    await journal.close()


async def test_a_long_text_is_cut() -> None:
    disk = Disk()
    journal = Journal(disk, lambda _: None)
    journal.note(record("x" * 100_000))
    await journal.close()
    assert disk.batches == [["x" * 500 + "…"]]
