"""The changes of state in the history's file: bounds, and what is never forgotten."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Final

import pytest

from egressd.model.history import DELAY_BLOCK, HistoryStep, TrafficSlot
from egressd.model.timelines import Recording, StateChange, TimelineWrite
from egressd.store import history_file, timelines
from egressd.store.history import HistoryStore
from egressd.store.history_file import HistoryFile

pytestmark = pytest.mark.anyio

FLAPPING: Final = 1
STABLE: Final = 2


def opened(folder: Path) -> HistoryFile:
    file = HistoryFile(folder / history_file.FILE)
    file.open()
    return file


def changed(number: int, at: int, code: int = 1) -> StateChange:
    return StateChange("line", number, 1, at, code)


def write(file: HistoryFile, *changes: StateChange, seen: int = 0) -> None:
    recordings = [Recording(1, 0, seen)] if seen else []
    file.write([], [], (), TimelineWrite(changes, recordings))


def test_changes_are_there_when_the_file_is_opened_again(tmp_path: Path) -> None:
    file = opened(tmp_path)
    node = StateChange("node", 7, 1, 50, 2)
    write(file, changed(FLAPPING, 100), changed(FLAPPING, 200, 2), node, seen=250)
    write(file, seen=300)
    file.open()
    last, recordings = file.states()
    assert {*last} == {node, changed(FLAPPING, 200, 2)}
    assert recordings == [Recording(1, 0, 300)]
    assert file.changes("line", FLAPPING, 0) == [changed(FLAPPING, 100), changed(FLAPPING, 200, 2)]
    assert file.changes("node", None, 0) == [node]
    file.close()


def test_the_last_change_before_a_time_is_returned_with_those_after_it(tmp_path: Path) -> None:
    file = opened(tmp_path)
    write(file, *(changed(number, at) for at in (100, 200, 300) for number in (1, 2)))
    assert [each.at for each in file.changes("line", 1, 250)] == [200, 300]
    assert [(each.number, each.at) for each in file.changes("line", None, 301)] == [
        (1, 300),
        (2, 300),
    ]
    file.close()


def test_a_part_that_changes_all_the_time_takes_no_room_of_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timelines, "CHANGES_MAX", 10)
    file = opened(tmp_path)
    write(file, changed(STABLE, 1))
    for at in range(100):
        write(file, changed(FLAPPING, at, at % 2))
        if at % 30 == 0:
            file.open()
    assert file.changes("line", STABLE, 0) == [changed(STABLE, 1)]
    assert 10 <= len(file.changes("line", None, 0)) <= 12
    assert file.changes("line", FLAPPING, 0)[-1].at == 99
    file.close()


def test_the_latest_recordings_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timelines, "RECORDINGS_MAX", 3)
    file = opened(tmp_path)
    for number in range(1, 9):
        file.write([], [], (), TimelineWrite((), [Recording(number, number, number)]))
    assert [each.number for each in file.states()[1]] == [6, 7, 8]
    file.close()


def test_a_slot_keeps_the_delays_of_nodes(tmp_path: Path) -> None:
    file = opened(tmp_path)
    for step in (HistoryStep.QUARTER, HistoryStep.DAY):
        file.write([TrafficSlot(step, 0, {DELAY_BLOCK: bytes([9, 0, 200])})], [])
        assert file.slot(step, 0) == {DELAY_BLOCK: bytes([9, 0, 200])}
        assert file.delays(step, range(-1, 1)) == {0: bytes([9, 0, 200])}
    file.write([TrafficSlot(HistoryStep.DAY, 0, {})], [])
    assert file.delays(HistoryStep.DAY, range(-1, 1)) == {0: b""}
    file.close()


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE changes SET part = 60000",
        "UPDATE changes SET at = 'noon'",
        "UPDATE recordings SET seen = 'noon'",
        "UPDATE blocks SET codes = zeroblob(4001)",
        "DROP TABLE changes; CREATE TABLE changes (id INTEGER)",
    ],
)
async def test_a_damaged_file_is_set_aside_and_begun_anew(tmp_path: Path, statement: str) -> None:
    file = opened(tmp_path)
    file.write(
        [TrafficSlot(HistoryStep.DAY, 0, {DELAY_BLOCK: b"\x01"})],
        [],
        (),
        TimelineWrite([changed(1, 5)], [Recording(1, 0, 9)]),
    )
    file.close()
    with closing(sqlite3.connect(tmp_path / history_file.FILE)) as connection:
        connection.executescript(statement)
    store = HistoryStore(tmp_path)
    await store.open()
    await store.states()
    await store.changes("line", 1, 0)
    await store.delays(HistoryStep.DAY, range(1))
    assert store.set_aside == 1
    await store.write([], [], (), TimelineWrite([changed(1, 7)], [Recording(1, 0, 9)]))
    assert await store.changes("line", 1, 0) == [changed(1, 7)]
    await store.close()
