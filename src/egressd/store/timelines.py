"""The changes of state in the history's file.

They are appended, and the oldest ones are deleted, so that a write touches few pages however many
parts have changed. A change that is the last one of its part is appended again before it is
deleted: a part that has been up for years is known to be.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from egressd.model.timelines import (
    CHANGES_MAX,
    PART_NUMBERS_MAX,
    PARTS_MAX,
    RECORDINGS_MAX,
    Part,
    Recording,
    StateChange,
    TimelineWrite,
    part_number,
    part_of,
)

TIMELINE_SCHEMA: Final = (
    "CREATE TABLE IF NOT EXISTS changes (id INTEGER PRIMARY KEY, part INTEGER NOT NULL,"
    " recording INTEGER NOT NULL, at INTEGER NOT NULL, state INTEGER NOT NULL)",
    "CREATE TABLE IF NOT EXISTS recordings (number INTEGER PRIMARY KEY, begun INTEGER NOT NULL,"
    " seen INTEGER NOT NULL)",
)
_INSERT: Final = "INSERT INTO changes (id, part, recording, at, state) VALUES (?, ?, ?, ?, ?)"
_COLUMNS: Final = "part, recording, at, state"


class TimelineEnd(NamedTuple):
    """The id of the next change, and the id of each part's last one."""

    next_id: int
    last: dict[int, int]


def read_last(connection: sqlite3.Connection) -> tuple[TimelineEnd, list[StateChange]]:
    """Return the last change of each part. Raises ValueError if the table is damaged."""
    rows = connection.execute(f"SELECT max(id), {_COLUMNS} FROM changes GROUP BY part")  # noqa: S608
    last = {}
    changes = []
    for id_, *columns in rows:
        change = _change(columns)
        last[part_number(change.part, change.number)] = id_
        changes.append(change)
    if not all(isinstance(id_, int) for id_ in last.values()):
        raise ValueError("it is damaged: its list of changes is none")
    return TimelineEnd(max(last.values(), default=0) + 1, last), changes


def read_recordings(connection: sqlite3.Connection) -> list[Recording]:
    """Return the recordings, in their order. Raises ValueError if the table is damaged."""
    rows = connection.execute("SELECT number, begun, seen FROM recordings ORDER BY number")
    found = [Recording(*row) for row in rows]
    if not all(isinstance(value, int) for each in found for value in each):
        raise ValueError("it is damaged: its list of recordings is none")
    return found


def write_timelines(
    connection: sqlite3.Connection, wanted: TimelineWrite, written: TimelineEnd
) -> TimelineEnd:
    """Write changes and recordings inside a transaction. Return what `written` is after it."""
    next_id, last = written.next_id, dict(written.last)

    def append(rows: Iterable[tuple[int, int, int, int]]) -> None:
        nonlocal next_id
        for part, *values in rows:
            connection.execute(_INSERT, (next_id, part, *values))
            last[part], next_id = next_id, next_id + 1

    append(
        (part_number(each.part, each.number), each.recording, each.at, each.code)
        for each in wanted.changes
    )
    if wanted.changes:
        oldest = next_id - CHANGES_MAX
        query = f"SELECT id, {_COLUMNS} FROM changes WHERE id < ? ORDER BY id"  # noqa: S608
        gone = connection.execute(query, (oldest,)).fetchall()
        append((part, *values) for id_, part, *values in gone if last.get(part) == id_)
        connection.execute("DELETE FROM changes WHERE id < ?", (oldest,))
    connection.executemany(
        "INSERT OR REPLACE INTO recordings (number, begun, seen) VALUES (?, ?, ?)",
        wanted.recordings,
    )
    if wanted.recordings:
        oldest = wanted.recordings[-1].number - RECORDINGS_MAX
        connection.execute("DELETE FROM recordings WHERE number <= ?", (oldest,))
    return TimelineEnd(next_id, last)


def read_changes(
    connection: sqlite3.Connection, part: Part, number: int | None, start: int
) -> list[StateChange]:
    """Return the changes of one part, or of all of a kind, from a Unix time on, and the last one of
    each before. They are in the order in which they were recorded. Raises ValueError if one is
    damaged.
    """
    first = part_number(part, number or 0)
    last = first if number is not None else first + PARTS_MAX[part] - 1
    between = "part BETWEEN ? AND ?"
    rows = connection.execute(
        f"SELECT id, {_COLUMNS} FROM changes WHERE {between} AND at >= ?"  # noqa: S608
        f" UNION SELECT max(id), {_COLUMNS} FROM changes WHERE {between} AND at < ?"
        " GROUP BY part ORDER BY 1",
        (first, last, start, first, last, start),
    )
    return [_change(columns) for _, *columns in rows]


def _change(columns: Sequence[object]) -> StateChange:
    part, recording, at, code = columns
    if not (
        isinstance(part, int)
        and isinstance(recording, int)
        and isinstance(at, int)
        and isinstance(code, int)
        and 0 <= part < PART_NUMBERS_MAX
    ):
        raise ValueError("it is damaged: its list of changes is none")
    return StateChange(*part_of(part), recording, at, code)
