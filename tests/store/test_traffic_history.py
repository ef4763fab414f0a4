"""The file of the history: rings of slots, its bounds, damage, and disks that fail."""

from __future__ import annotations

import sqlite3
from array import array
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from egressd.model.errors import Failed
from egressd.model.history import (
    STORED,
    Exchanged,
    HistoryKey,
    HistoryStep,
    OpenSlot,
    TrafficSlot,
)
from egressd.store import history_file
from egressd.store.connection import BadDatabase
from egressd.store.history import HistoryStore
from egressd.store.history_file import HistoryFile

pytestmark = pytest.mark.anyio

KEY: Final = HistoryKey("client", 7, "10.0.0.7", 0, 0)
DAY: Final = HistoryStep.DAY
QUARTER: Final = HistoryStep.QUARTER


def slot(step: HistoryStep, start: int, upload: int) -> TrafficSlot:
    opened = OpenSlot(start)
    opened.add("client", 7, Exchanged(upload, 0))
    return TrafficSlot(step, start, opened.blocks())


def opened(folder: Path) -> HistoryFile:
    file = HistoryFile(folder / history_file.FILE)
    file.open()
    return file


def uploads(file: HistoryFile, step: HistoryStep) -> dict[int, int]:
    found = file.series(step, "client", 7, range(-(1 << 50), 1 << 50))
    return {start: pair.upload for start, pair in found.items()}


def test_a_file_has_what_was_written_when_it_is_opened_again(tmp_path: Path) -> None:
    file = opened(tmp_path)
    file.write([slot(QUARTER, 900, 5), slot(DAY, 0, 6)], [KEY])
    file.close()
    again = HistoryFile(tmp_path / history_file.FILE)
    assert again.open() == [KEY]
    assert (uploads(again, QUARTER), uploads(again, DAY)) == ({900: 5}, {0: 6})
    assert again.slot(QUARTER, 900) == slot(QUARTER, 900, 5).blocks
    assert dict(again.sums(QUARTER, "client", [900]).largest("client", 5)) == {7: Exchanged(5, 0)}
    assert (tmp_path / history_file.FILE).stat().st_mode & 0o777 == 0o600
    again.close()


def test_a_written_slot_takes_the_place_of_the_one_with_its_start(tmp_path: Path) -> None:
    file = opened(tmp_path)
    file.write([slot(QUARTER, 900, 5)], [])
    file.write([slot(QUARTER, 900, 8)], [])
    assert uploads(file, QUARTER) == {900: 8}
    file.write([TrafficSlot(QUARTER, 900, {})], [])
    assert uploads(file, QUARTER) == {900: 0}
    file.close()


def test_a_slot_grows_until_it_is_written_without_growing(tmp_path: Path) -> None:
    file = opened(tmp_path)
    growing = [(DAY, 0), (DAY, 86_400)]  # the second one is not stored
    file.write([slot(QUARTER, 900, 5), slot(DAY, 0, 6)], [], growing)
    assert (file.growing(DAY), file.growing(QUARTER)) == ([0], [])
    file.write([slot(QUARTER, 900, 7)], [])
    file.open()
    assert file.growing(DAY) == [0]
    file.write([slot(DAY, 0, 8)], [])
    file.open()
    assert file.growing(DAY) == []
    file.write([], [], [(DAY, 0)])
    file.open()
    assert file.growing(DAY) == [0]
    file.close()


def test_a_file_of_the_first_version_is_read_on(tmp_path: Path) -> None:
    file = opened(tmp_path)
    file.write([slot(DAY, 0, 6)], [KEY])
    file.close()
    change(tmp_path / history_file.FILE, "ALTER TABLE slots DROP COLUMN is_growing")
    change(tmp_path / history_file.FILE, "PRAGMA user_version = 1")
    again = HistoryFile(tmp_path / history_file.FILE)
    assert again.open() == [KEY]
    again.write([slot(DAY, 86_400, 7)], [], [(DAY, 86_400)])
    again.open()
    assert (uploads(again, DAY), again.growing(DAY)) == ({0: 6, 86_400: 7}, [86_400])
    again.close()


STARTS: Final = st.integers(-(1 << 40), 1 << 40).map(lambda n: n * 900)


@given(st.lists(STARTS, max_size=40), st.integers(2, 5))
def test_a_ring_keeps_the_slots_written_last_whatever_the_clock(
    tmp_path_factory: pytest.TempPathFactory, starts: list[int], kept: int
) -> None:
    file = opened(tmp_path_factory.mktemp("ring"))
    expected: dict[int, int] = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(QUARTER, "kept", kept)
        for upload, start in enumerate(starts, 1):
            file.write([slot(QUARTER, start, upload)], [])
            if start not in expected and len(expected) == kept:
                del expected[next(iter(expected))]
            expected[start] = upload
        assert uploads(file, QUARTER) == expected
        assert sorted(file.starts(QUARTER)) == sorted(expected)
    file.close()


WRITES_AND_QUESTIONS: Final = st.lists(
    st.tuples(st.sampled_from(["write", "ask"]), st.sets(st.integers(0, 9), max_size=8)),
    max_size=30,
)


@given(WRITES_AND_QUESTIONS)
def test_sums_are_those_of_the_slots_whatever_was_asked_before(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, set[int]]]
) -> None:
    file = opened(tmp_path_factory.mktemp("sums"))
    written = 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(QUARTER, "kept", 6)
        for do, numbers in steps:
            starts = [number * 900 for number in numbers]
            if do == "write":
                written += 1
                file.write([slot(QUARTER, start, written) for start in starts], [])
                continue
            known = uploads(file, QUARTER)
            expected = sum(known.get(start, 0) for start in starts)
            sums = file.sums(QUARTER, "client", starts)
            found = dict(sums.largest("client", 5))
            assert found.get(7, Exchanged()).upload == expected
            sums.add_numbers(0, array("Q", [1] * 2000))  # the caller's own, of no other question
    file.close()


def test_totals_begin_at_the_time_of_each_key(tmp_path: Path) -> None:
    file = opened(tmp_path)
    file.write([slot(QUARTER, start, start) for start in (900, 1800, 2700)], [])
    starts = [900, 1800, 2700, 3600]
    for since, expected in ((0, 5400), (1800, 4500), (2701, 0)):
        found = file.totals(QUARTER, "client", {7: since, 1007: 0}, starts)
        assert found == {7: Exchanged(expected, 0), 1007: Exchanged()}
    assert file.totals(QUARTER, "client", {7: 0}, [2700]) == {7: Exchanged(2700, 0)}
    file.close()


DAMAGES: Final[dict[str, Callable[[Path], object]]] = {
    "no database": lambda path: path.write_bytes(b"x" * 8192),
    "first page": lambda path: overwrite(path, 0),
    "other page": lambda path: overwrite(path, 4096),
    "of another program": lambda path: change(path, "PRAGMA application_id = 7"),
    "of another version": lambda path: change(path, "PRAGMA user_version = 9"),
    "no codes": lambda path: change(path, "UPDATE blocks SET codes = x'ffffffff'"),
    "no blob": lambda path: change(path, "UPDATE blocks SET codes = 'text'"),
    "too long": lambda path: change(path, "UPDATE blocks SET codes = zeroblob(9000)"),
    "no slots": lambda path: change(path, "UPDATE slots SET position = 5000 + position"),
    "no keys": lambda path: change(path, 'UPDATE "keys" SET number = 99999'),
    "no table": lambda path: change(path, "DROP TABLE blocks"),
}


def overwrite(path: Path, offset: int) -> None:
    content = bytearray(path.read_bytes())
    content[offset : offset + 4096] = b"\xa5" * 4096
    path.write_bytes(content)


def change(path: Path, statement: str) -> None:
    connection = sqlite3.connect(path)
    connection.execute(statement)
    connection.commit()
    connection.close()


@pytest.mark.parametrize("damage", DAMAGES)
async def test_a_damaged_file_is_set_aside_and_begun_anew(tmp_path: Path, damage: str) -> None:
    path = tmp_path / history_file.FILE
    file = opened(tmp_path)
    file.write([slot(QUARTER, 900 * n, 2000) for n in range(1, 20)], [KEY])
    file.close()
    DAMAGES[damage](path)
    store = HistoryStore(tmp_path)
    await store.open()
    await store.slot(QUARTER, 900)
    await store.series(QUARTER, "client", 7, range(1 << 40))
    await store.sums(QUARTER, "client", [900])
    assert store.set_aside == 1
    assert path.with_name("history.db.damaged").exists()
    await store.write([slot(QUARTER, 1800, 3)], [KEY])
    assert (await store.series(QUARTER, "client", 7, range(1 << 40)))[1800] == Exchanged(3, 0)
    await store.close()


async def test_a_slot_with_other_numbers_than_codes_is_not_handed_on(tmp_path: Path) -> None:
    file = opened(tmp_path)
    file.write([slot(QUARTER, 900, 2000)], [KEY])
    file.close()
    DAMAGES["no codes"](tmp_path / history_file.FILE)
    store = HistoryStore(tmp_path)
    await store.open()
    assert await store.slot(QUARTER, 900) == {}
    assert store.set_aside == 1
    await store.close()


def test_one_damaged_file_is_kept_at_most(tmp_path: Path) -> None:
    for _ in range(3):
        file = opened(tmp_path)
        file.begin_anew()
        file.close()
    assert {each.name for each in tmp_path.iterdir()} == {"history.db", "history.db.damaged"}


async def test_a_disk_that_fails_loses_nothing_that_was_written(tmp_path: Path) -> None:
    store = HistoryStore(tmp_path)
    await store.open()
    await store.write([slot(QUARTER, 900, 5)], [KEY])
    await store.close()
    path = tmp_path / history_file.FILE
    path.rename(tmp_path / "away")
    path.mkdir()
    store = HistoryStore(tmp_path)
    with pytest.raises(Failed) as failed:
        await store.open()
    assert not isinstance(failed.value, BadDatabase)
    path.rmdir()
    (tmp_path / "away").rename(path)
    assert await store.open() == [KEY]
    assert store.set_aside == 0
    await store.close()


async def test_a_write_follows_one_that_failed(tmp_path: Path) -> None:
    store = HistoryStore(tmp_path)
    await store.write([slot(QUARTER, 0, 5)], [KEY])
    connection = store._file._ready()
    pages = connection.execute("PRAGMA page_count").fetchone()[0]
    connection.execute(f"PRAGMA max_page_count = {pages}")
    whole = {block: bytes([1, 0]) * 2000 for block in range(14)}
    with pytest.raises(Failed, match="full"):
        await store.write([TrafficSlot(QUARTER, 900, whole)], [])
    # The connection is another one by now, which has no bound.
    assert await store.slot(QUARTER, 0) == slot(QUARTER, 0, 5).blocks
    await store.write([TrafficSlot(QUARTER, 900, whole)], [])
    assert sorted(await store.starts(QUARTER)) == [0, 900]
    assert await store.slot(QUARTER, 900) == whole
    assert store.set_aside == 0
    await store.close()


def test_a_full_disk_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    file = opened(tmp_path)
    file.write([slot(step, 0, 5) for step in STORED], [])
    connection = file._ready()  # SQLite answers as on a full disk beyond this number of pages
    pages = connection.execute("PRAGMA page_count").fetchone()[0]
    connection.execute(f"PRAGMA max_page_count = {pages}")
    whole = {block: bytes([1, 0]) * 2000 for block in range(14)}
    with pytest.raises(Failed, match="full"):
        file.write([TrafficSlot(QUARTER, 900, whole)], [])
    assert uploads(file, QUARTER) == {0: 5}
    connection.execute("PRAGMA max_page_count = 100000")
    file.write([TrafficSlot(QUARTER, 900, whole)], [])
    assert uploads(file, QUARTER) == {0: 5, 900: 1}
    file.close()
