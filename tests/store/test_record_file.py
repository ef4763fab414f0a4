"""The file of a record, here of the last known exits."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
import structlog

from egressd.model.exits import KnownExit
from egressd.store.record_file import RecordFile

KNOWN = {
    "node:7": KnownExit(ip="203.0.113.7", country="JP", seen_at="b", changed_at="a"),
    "DIRECT": KnownExit(ip="2001:db8::1", seen_at="d", changed_at="c"),
}


def record(folder: Path) -> RecordFile[dict[str, KnownExit]]:
    return RecordFile(folder / "exits.json", dict[str, KnownExit], "exits")


async def test_exits_outlive_a_restart(tmp_path: Path) -> None:
    assert await record(tmp_path).load() == {}
    await record(tmp_path).save(KNOWN)
    assert await record(tmp_path).load() == KNOWN
    assert (tmp_path / "exits.json").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("content", [b"", b"[]", b'{"node:7": {}}', b"\xff", b'{"node:7": '])
async def test_a_damaged_file_is_begun_anew(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "exits.json").write_bytes(content)
    with structlog.testing.capture_logs() as entries:
        assert await record(tmp_path).load() == {}
    assert [entry["log_level"] for entry in entries] == ["warning"]
    await record(tmp_path).save(KNOWN)
    assert await record(tmp_path).load() == KNOWN


async def test_a_file_that_cannot_be_written_is_logged_alone(tmp_path: Path) -> None:
    await record(tmp_path).save(KNOWN)
    (tmp_path / "exits.json.new").mkdir()
    with structlog.testing.capture_logs() as entries:
        await record(tmp_path).save({})
    assert [entry["log_level"] for entry in entries] == ["warning"]
    assert await record(tmp_path).load() == KNOWN


async def test_a_caller_that_is_cancelled_leaves_a_whole_file(tmp_path: Path) -> None:
    file = record(tmp_path)
    leaving = asyncio.create_task(file.save({}))
    await asyncio.sleep(0)
    leaving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await leaving
    await file.save(KNOWN)
    assert await file.load() == KNOWN
