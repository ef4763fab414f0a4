"""The history on disk: ``history.db``, a file of its own beside the state's. It has the traffic of
clients, targets and interfaces, and the delays and states of nodes, lines and groups.

Nothing of it is needed to route. A file that cannot be read is set aside as
``history.db.damaged``, and a new one is begun. Every step has a ring of slots: a new slot takes
the place of the one that was written first, whatever the clock says, so that the file has a
largest size. A row is a block of a slot and fills a page, so that a write changes few pages.
"""

from __future__ import annotations

import sqlite3
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Final

from egressd.model.history import (
    BLOCK_KEYS,
    BLOCKS,
    BLOCKS_MAX,
    DELAY_BLOCK,
    KEYS_MAX,
    STORED,
    Blocks,
    By,
    Exchanged,
    HistoryKey,
    HistoryStep,
    SlotStart,
    Sums,
    TrafficSlot,
    block_of,
    exchanged_in,
    numbers_of,
)
from egressd.model.node_delays import NODES_MAX
from egressd.model.timelines import Part, Recording, StateChange, TimelineWrite
from egressd.store.connection import reported
from egressd.store.timelines import (
    TIMELINE_SCHEMA,
    TimelineEnd,
    read_changes,
    read_last,
    read_recordings,
    write_timelines,
)

FILE: Final = "history.db"
APPLICATION_ID: Final = 0x45475248
"""The id in the file's header (``PRAGMA application_id``): "EGRH"."""
_VERSION: Final = 2
_FORMER: Final = {1: "ALTER TABLE slots ADD COLUMN is_growing INTEGER NOT NULL DEFAULT 0"}
"""Version of an older file -> the statement that makes it the next one."""
_TABLES: Final = {
    HistoryStep.QUARTER: "quarters",
    HistoryStep.HOUR: "hours",
    HistoryStep.DAY: "days",
}
_SCHEMA: Final = (
    "CREATE TABLE slots (step INTEGER, position INTEGER, number INTEGER NOT NULL,"
    " start INTEGER NOT NULL, is_growing INTEGER NOT NULL DEFAULT 0,"
    " PRIMARY KEY (step, position)) WITHOUT ROWID",
    'CREATE TABLE "keys" (kind TEXT, number INTEGER, name TEXT NOT NULL, since INTEGER NOT NULL,'
    " used INTEGER NOT NULL, PRIMARY KEY (kind, number)) WITHOUT ROWID",
    "CREATE TABLE blocks (id INTEGER PRIMARY KEY, codes BLOB NOT NULL)",
)
"""`slots`: the start of the slot that each position of a step's ring has, and a number that grows
by one with each new slot; `is_growing` is 1 if more may have been added since. `blocks`: a block of
a slot, by `_id`."""
NO_TIMELINES: Final = TimelineWrite()
_SUMS_KEPT: Final = 12
"""Sums of all keys of a kind: 160 KB each with 10,000 clients."""
_POSITIONS: Final = 1 << 10
"""Ids from a block to the next one: more than the slots that any step keeps."""


class AskedSums:
    """The sums that were asked for last. A question is mostly one that was asked before, some slots
    later: then only these are read.
    """

    def __init__(self) -> None:
        self._kept: deque[tuple[HistoryStep, By, frozenset[int], Sums]] = deque(maxlen=_SUMS_KEPT)

    def nearest(
        self, step: HistoryStep, by: By, wanted: frozenset[int]
    ) -> tuple[frozenset[int], Sums]:
        """Return the sums that need the fewest changes to be those of the slots `wanted`, and the
        starts of the slots that are in them. They are not kept any more.
        """
        nearest, fewest = None, len(wanted)
        for kept in self._kept:
            if kept[:2] == (step, by) and len(kept[2] ^ wanted) < fewest:
                nearest, fewest = kept, len(kept[2] ^ wanted)
        if nearest is None:
            return frozenset(), Sums()
        self._kept.remove(nearest)
        return nearest[2], nearest[3]

    def keep(self, step: HistoryStep, by: By, starts: frozenset[int], sums: Sums) -> None:
        """Keep sums, in place of those that were asked for the longest time ago."""
        self._kept.append((step, by, starts, sums))

    def forget(self, step: HistoryStep, start: int) -> None:
        """Keep no sums with this slot any more: it changes."""
        left = [kept for kept in self._kept if kept[0] is not step or start not in kept[2]]
        self._kept = deque(left, maxlen=_SUMS_KEPT)


class HistoryFile:
    """The file, for one thread at a time. Every method raises Failed, and BadDatabase if the file
    is damaged: `begin_anew` is due then.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._connection: sqlite3.Connection | None = None
        self._positions: dict[HistoryStep, dict[int, int]] = {}
        self._newest: dict[HistoryStep, tuple[int, int]] = {}
        self._growing: set[SlotStart] = set()
        self._timelines = TimelineEnd(1, {})
        self._asked = AskedSums()

    def open(self) -> Sequence[HistoryKey]:
        """Open the file, which is made if there is none. Return the keys in it."""
        self.close()
        with reported(f"read {self._path}"):
            self._connection = connection = sqlite3.connect(
                self._path, isolation_level=None, check_same_thread=False
            )
            try:
                return self._read(connection)
            except BaseException:
                self.close()
                raise

    def _read(self, connection: sqlite3.Connection) -> Sequence[HistoryKey]:
        self._path.chmod(0o600)
        for pragma in (
            "page_size = 4096",
            "journal_mode = WAL",
            "synchronous = NORMAL",
            "trusted_schema = OFF",
            "cell_size_check = ON",
            "cache_size = -1024",
            "journal_size_limit = 0",
        ):
            connection.execute(f"PRAGMA {pragma}")
        if not _number(connection, "schema_version"):
            self._create(connection)
        if _number(connection, "application_id") != APPLICATION_ID:
            raise ValueError("it is not a history of egressd's")
        self._upgrade(connection)
        for statement in TIMELINE_SCHEMA:
            connection.execute(statement)
        self._read_slots(connection)
        self._timelines, _ = read_last(connection)
        return [*_read_keys(connection)]

    def starts(self, step: HistoryStep) -> Sequence[int]:
        """Return the starts of the slots that there are, in the order in which they came."""
        self._ready()
        return [*self._positions[step]]

    def growing(self, step: HistoryStep) -> Sequence[int]:
        """Return the starts of the slots that may lack what came after their last write."""
        self._ready()
        return [start for its, start in self._growing if its is step]

    def slot(self, step: HistoryStep, start: int) -> Blocks:
        """Return the blocks of a slot; empty if there is none."""
        self._ready()
        position = self._positions[step].get(start)
        if position is None:
            return {}
        found: Blocks = {}
        with reported(f"read {self._path}"):
            for block in (*range(BLOCKS_MAX), DELAY_BLOCK):
                if codes := self._block(step, block, position):
                    if block != DELAY_BLOCK:
                        numbers_of(codes)  # raises ValueError here, where a bad file is set aside
                    found[block] = codes
        return found

    def delays(self, step: HistoryStep, starts: range) -> dict[int, bytes]:
        """Return the block of nodes' delays of each slot that there is of those that begin in
        `starts`.
        """
        self._ready()
        with reported(f"read {self._path}"):
            return {
                start: self._block(step, DELAY_BLOCK, self._positions[step][start])
                for start in self._between(step, starts)
            }

    def states(self) -> tuple[Sequence[StateChange], Sequence[Recording]]:
        """Return the last change of state of each part, and the recordings in their order."""
        connection = self._ready()
        with reported(f"read {self._path}"):
            return read_last(connection)[1], read_recordings(connection)

    def changes(self, part: Part, number: int | None, start: int) -> Sequence[StateChange]:
        """Return the changes of one part, or of all of a kind, from a Unix time on, and the last
        one of each before.
        """
        connection = self._ready()
        with reported(f"read {self._path}"):
            return read_changes(connection, part, number, start)

    def write(
        self,
        slots: Iterable[TrafficSlot],
        keys: Iterable[HistoryKey],
        growing: Collection[SlotStart] = (),
        timelines: TimelineWrite = NO_TIMELINES,
    ) -> None:
        """Store slots, each in place of the one with its start, keys and changes of state, in one
        transaction. `growing`: slots that more is added to, of which some may be stored.
        """
        connection = self._ready()
        slots = [*slots]
        grow = {*growing} | (self._growing - {(slot.step, slot.start) for slot in slots})
        positions = {step: dict(known) for step, known in self._positions.items()}
        newest = dict(self._newest)
        with reported(f"write {self._path}"):
            connection.execute("BEGIN IMMEDIATE")
            try:
                for slot in slots:
                    self._write(connection, slot, positions[slot.step], newest)
                connection.executemany(
                    'INSERT OR REPLACE INTO "keys" (kind, number, name, since, used)'
                    " VALUES (?, ?, ?, ?, ?)",
                    ((key.by, key.number, key.name, key.since, key.used) for key in keys),
                )
                grow = {each for each in grow if each[1] in positions[each[0]]}
                connection.executemany(
                    "UPDATE slots SET is_growing = ? WHERE step = ? AND position = ?",
                    (
                        (each in grow, each[0].seconds, positions[each[0]][each[1]])
                        for each in grow ^ self._growing
                        if each[1] in positions[each[0]]
                    ),
                )
                written = write_timelines(connection, timelines, self._timelines)
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise
            self._positions, self._newest, self._growing = positions, newest, grow
            self._timelines = written
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()

    def series(self, step: HistoryStep, by: By, number: int, starts: range) -> dict[int, Exchanged]:
        """Return the bytes of a key in each slot that there is of those that begin in `starts`."""
        self._ready()
        found = dict.fromkeys(self._between(step, starts), Exchanged())
        if not found:
            return {}
        of_position = {self._positions[step][start]: start for start in found}
        first = _id(step, block_of(by, number), 0)
        with reported(f"read {self._path}"):
            for id_, pair in self._ready().execute(
                "SELECT id, substr(codes, ?, 4) FROM blocks WHERE id BETWEEN ? AND ?",
                (number % BLOCK_KEYS * 4 + 1, first, first + step.kept - 1),
            ):
                if (start := of_position.get(id_ - first)) is not None:
                    found[start] = exchanged_in(_codes(pair), 0)  # the pair alone
        return found

    def sums(self, step: HistoryStep, by: By, starts: Sequence[int]) -> Sums:
        """Return the sums of all keys of a kind over the slots with these starts."""
        self._ready()
        known = self._positions[step]
        wanted = frozenset(start for start in starts if start in known)
        summed, sums = self._asked.nearest(step, by, wanted)
        with reported(f"read {self._path}"):
            for block in BLOCKS[by]:
                for start in wanted ^ summed:
                    if codes := self._block(step, block, known[start]):
                        (sums.add if start in wanted else sums.remove)(block, codes)
        self._asked.keep(step, by, wanted, sums)
        return sums.copy()

    def totals(
        self, step: HistoryStep, by: By, since: Mapping[int, int], starts: Sequence[int]
    ) -> dict[int, Exchanged]:
        """Return the sums of some keys of a kind, by their numbers, over those of the slots that
        begin from the time of each key in `since` on.
        """
        self._ready()
        known = self._positions[step]
        found: dict[int, Exchanged] = dict.fromkeys(since, Exchanged())
        by_block: dict[int, list[int]] = {}
        for number in since:
            by_block.setdefault(block_of(by, number), []).append(number)
        with reported(f"read {self._path}"):
            for block, numbers in by_block.items():
                for start in starts:
                    due = [number for number in numbers if since[number] <= start]
                    if not due or start not in known:
                        continue
                    codes = self._block(step, block, known[start])
                    for number in due:
                        found[number] = found[number].plus(exchanged_in(codes, number))
        return found

    def begin_anew(self) -> None:
        """Set the file aside, in place of one that was before, and begin another one."""
        self.close()
        with reported(f"set {self._path} aside"):
            for ending in ("-wal", "-shm"):
                Path(f"{self._path}{ending}").unlink(missing_ok=True)
            if self._path.exists():
                self._path.replace(Path(f"{self._path}.damaged"))
        self.open()

    def close(self) -> None:
        """Close the file."""
        connection, self._connection = self._connection, None
        self._positions, self._newest, self._growing = {}, {}, set()
        self._asked = AskedSums()
        if connection is not None:
            connection.close()

    def _create(self, connection: sqlite3.Connection) -> None:
        connection.execute("BEGIN IMMEDIATE")
        for statement in _SCHEMA:
            connection.execute(statement)
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {_VERSION}")
        connection.execute("COMMIT")

    def _upgrade(self, connection: sqlite3.Connection) -> None:
        while (version := _number(connection, "user_version")) != _VERSION:
            if version not in _FORMER:
                raise ValueError("it was written by another egressd")
            connection.execute("BEGIN IMMEDIATE")
            connection.execute(_FORMER[version])
            connection.execute(f"PRAGMA user_version = {version + 1}")
            connection.execute("COMMIT")

    def _read_slots(self, connection: sqlite3.Connection) -> None:
        self._positions = {step: {} for step in STORED}
        self._newest = dict.fromkeys(STORED, (0, -1))
        by_seconds = {step.seconds: step for step in STORED}
        self._growing = set()
        rows = connection.execute(
            "SELECT step, position, number, start, is_growing FROM slots ORDER BY number"
        )
        for seconds, position, number, start, is_growing in rows:
            step = by_seconds.get(seconds)
            whole = all(isinstance(each, int) for each in (position, number, start))
            if step is None or not whole or not 0 <= position < step.kept:
                raise ValueError("it is damaged: its list of slots is none")
            self._positions[step][start] = position
            self._newest[step] = (number, position)
            if is_growing:
                self._growing.add((step, start))

    def _write(
        self,
        connection: sqlite3.Connection,
        slot: TrafficSlot,
        positions: dict[int, int],
        newest: dict[HistoryStep, tuple[int, int]],
    ) -> None:
        step, start, blocks = slot
        self._asked.forget(step, start)
        position = positions.get(start)
        if position is None:
            number, last = newest[step]
            number, position = number + 1, (last + 1) % step.kept
            for gone in [each for each, other in positions.items() if other == position]:
                del positions[gone]
                self._asked.forget(step, gone)
            positions[start], newest[step] = position, (number, position)
            connection.execute(
                "INSERT OR REPLACE INTO slots (step, position, number, start) VALUES (?, ?, ?, ?)",
                (step.seconds, position, number, start),
            )
        connection.executemany(
            "DELETE FROM blocks WHERE id = ?",
            (
                (_id(step, block, position),)
                for block in (*range(BLOCKS_MAX), DELAY_BLOCK)
                if block not in blocks
            ),
        )
        connection.executemany(
            "INSERT OR REPLACE INTO blocks (id, codes) VALUES (?, ?)",
            ((_id(step, block, position), codes) for block, codes in blocks.items()),
        )

    def _between(self, step: HistoryStep, starts: range) -> list[int]:
        # Not `in starts`, which asks for multiples of the range's step.
        return [start for start in self._positions[step] if starts.start <= start < starts.stop]

    def _block(self, step: HistoryStep, block: int, position: int) -> bytes:
        query = "SELECT codes FROM blocks WHERE id = ?"
        with closing(self._ready().execute(query, (_id(step, block, position),))) as rows:
            row = rows.fetchone()
        if row is None:
            return b""
        return _delay_codes(row[0]) if block == DELAY_BLOCK else _codes(row[0])

    def _ready(self) -> sqlite3.Connection:
        if self._connection is None:
            self.open()
        assert self._connection is not None
        return self._connection


def _number(connection: sqlite3.Connection, pragma: str) -> int:
    with closing(connection.execute(f"PRAGMA {pragma}")) as rows:
        return int(rows.fetchone()[0])


def _id(step: HistoryStep, block: int, position: int) -> int:
    nth = STORED.index(step)
    # The block of delays came later: those of all steps follow all others.
    row = len(STORED) * BLOCKS_MAX + nth if block == DELAY_BLOCK else nth * BLOCKS_MAX + block
    return row * _POSITIONS + position


def _codes(stored: object) -> bytes:
    if not isinstance(stored, bytes) or len(stored) > 4 * BLOCK_KEYS or len(stored) % 4:
        raise ValueError("it is damaged: a block has another form")
    return stored


def _delay_codes(stored: object) -> bytes:
    if not isinstance(stored, bytes) or len(stored) > NODES_MAX:
        raise ValueError("it is damaged: a block of delays has another form")
    return stored


def _read_keys(connection: sqlite3.Connection) -> Iterator[HistoryKey]:
    for row in connection.execute('SELECT kind, number, name, since, used FROM "keys"'):
        kind, number, name, since, used = row
        whole = all(isinstance(each, int) for each in (number, since, used))
        if kind not in KEYS_MAX or not isinstance(name, str) or not whole:
            raise ValueError("it is damaged: its list of keys is none")
        if not 0 <= number < KEYS_MAX[kind]:
            raise ValueError("it is damaged: a key has a number beyond all")
        yield HistoryKey(kind, number, name, since, used)
