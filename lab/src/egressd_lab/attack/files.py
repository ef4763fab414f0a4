"""Prepared files: backups with content that the API would refuse, or that are no backups of
egressd.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from random import Random
from typing import Final

from egressd.model.errors import Failed
from egressd_lab.device import Device

_SCHEMAS: Final = {
    "a view": "ALTER TABLE rules RENAME TO r; CREATE VIEW rules AS SELECT * FROM r",
    "a view without an end": (
        "ALTER TABLE rules RENAME TO r; CREATE VIEW rules AS WITH RECURSIVE n(i) AS"
        " (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT r.* FROM r, n"
    ),
    "a view of gigabytes": (
        "ALTER TABLE settings RENAME TO s; CREATE VIEW settings AS"
        " SELECT 'delay_url' AS key, hex(randomblob(900000000)) AS value"
    ),
    "a trigger": (
        "CREATE TRIGGER t AFTER INSERT ON rules BEGIN DELETE FROM rules WHERE id != new.id; END"
    ),
    "a table of its own": "CREATE TABLE guest (x)",
    "an index of its own": "CREATE INDEX guest ON rules (lower(ip))",
}


class Files:
    """Restores one prepared file after the other. egressd must refuse each of them."""

    def __init__(self, device: Device, folder: Path, rng: Random) -> None:
        self._device = device
        self._good = folder / "good.backup"
        self._bad = folder / "bad.backup"
        self._rng = rng
        device.run("backup", str(self._good))

    def attack(self) -> tuple[str, bool]:
        """Try one file. Return its kind, and True if egressd accepted it."""
        ways: dict[str, Callable[[], None]] = {
            "bytes that are others": self._damage,
            "a value of another type": self._mistype,
            "counters at their end": self._exhaust,
            "a schema of its own": self._reshape,
        }
        name = self._rng.choice(list(ways))
        self._bad.write_bytes(self._good.read_bytes())
        ways[name]()
        with suppress(Failed):
            self._device.run("restore", str(self._bad))
            self._device.run("restore", str(self._good))
            return name, True
        return name, False

    def _damage(self) -> None:
        data = bytearray(self._bad.read_bytes())
        for _ in range(200):
            data[self._rng.randrange(100)] = self._rng.randrange(256)
        self._bad.write_bytes(data[: self._rng.randrange(1, len(data))])

    def _mistype(self) -> None:
        with closing(sqlite3.connect(self._bad)) as database, database:
            tables = [
                table
                for (table,) in database.execute(
                    "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqli%'"
                )
                if database.execute(f'SELECT 1 FROM "{table}"').fetchone()  # noqa: S608
            ]
            table = self._rng.choice(tables)
            columns = [row[1] for row in database.execute(f'PRAGMA table_info("{table}")')]
            column, value = self._rng.choice(columns), self._rng.randbytes(9) + b"\xff\x00"
            database.execute("PRAGMA ignore_check_constraints = 1")
            with suppress(sqlite3.IntegrityError):
                database.execute(f'UPDATE "{table}" SET "{column}" = ?', [value])  # noqa: S608
                return
        self._damage()

    def _exhaust(self) -> None:
        with closing(sqlite3.connect(self._bad)) as database, database:
            database.execute("UPDATE counters SET value = 9223372036854775807")

    def _reshape(self) -> None:
        with closing(sqlite3.connect(self._bad)) as database, database:
            database.executescript(self._rng.choice(list(_SCHEMAS.values())))
