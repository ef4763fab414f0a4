"""The devices of LANs on disk: ``devices.db``, a file of its own beside the state's.

They are watched, not configured, and nothing of them is needed to route: a restored backup does not
bring back old ones, and a file that cannot be read is set aside as ``devices.db.damaged``. A write
opens the file and closes it, since there are few.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec
import structlog

from egressd.model.devices import DEVICES_MAX, DeviceAddress, LanDevice, normal_mac
from egressd.store.connection import BadDatabase, reported

T = TypeVar("T")

log = structlog.get_logger()

FILE: Final = "devices.db"
APPLICATION_ID: Final = 0x45475244
"""The id in the file's header (``PRAGMA application_id``): "EGRD"."""
_VERSION: Final = 1
_SCHEMA: Final = (
    "CREATE TABLE devices (mac TEXT PRIMARY KEY, name TEXT NOT NULL, comment TEXT NOT NULL,"
    " hostname TEXT NOT NULL, vendor_class TEXT NOT NULL, first_seen INTEGER NOT NULL,"
    " last_seen INTEGER NOT NULL, addresses TEXT NOT NULL) WITHOUT ROWID"
)
_GET: Final = (
    "SELECT mac, name, comment, hostname, vendor_class, first_seen, last_seen, addresses"
    " FROM devices LIMIT ?"
)
_PUT: Final = (
    "INSERT OR REPLACE INTO devices"
    " (mac, name, comment, hostname, vendor_class, first_seen, last_seen, addresses)"
    " VALUES (:mac, :name, :comment, :hostname, :vendor_class, :first_seen, :last_seen, :addresses)"
)


class DeviceFile:
    """The devices in `directory`. A damaged file never fails a call."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / FILE
        self._lock = asyncio.Lock()

    async def load(self) -> Sequence[LanDevice]:
        """Return the stored devices, in no order. Raises Failed."""
        return await self._do(self._read)

    async def write(self, devices: Sequence[LanDevice], gone: Sequence[str]) -> None:
        """Put devices, and delete others by hardware address, durably. Raises Failed."""
        # A cancelled caller must not release the lock while the file is being written.
        await asyncio.shield(self._do(lambda: self._write(devices, gone)))

    async def _do(self, call: Callable[[], T]) -> T:
        async with self._lock:
            return await asyncio.to_thread(self._run, call)

    def _run(self, call: Callable[[], T]) -> T:
        try:
            return call()
        except BadDatabase as error:
            log.error("device file is damaged, and was set aside", error=str(error))
            with reported(f"set {self._path} aside"):
                Path(f"{self._path}-journal").unlink(missing_ok=True)
                self._path.replace(Path(f"{self._path}.damaged"))
            return call()

    def _read(self) -> list[LanDevice]:
        with self._opened() as connection:
            connection.row_factory = sqlite3.Row
            return [_device(dict(row)) for row in connection.execute(_GET, (DEVICES_MAX,))]

    def _write(self, devices: Sequence[LanDevice], gone: Sequence[str]) -> None:
        with self._opened() as connection:
            connection.execute("BEGIN IMMEDIATE")
            connection.executemany("DELETE FROM devices WHERE mac = ?", ((mac,) for mac in gone))
            connection.executemany(_PUT, map(_row, devices))
            connection.execute("COMMIT")

    @contextmanager
    def _opened(self) -> Iterator[sqlite3.Connection]:
        """Yield a connection, and make the file if there is none."""
        with (
            reported(f"use {self._path}"),
            closing(sqlite3.connect(self._path, isolation_level=None)) as connection,
        ):
            connection.execute("PRAGMA synchronous = FULL")
            (version,) = connection.execute("PRAGMA user_version").fetchone()
            (application,) = connection.execute("PRAGMA application_id").fetchone()
            if (application, version) == (0, 0):
                self._path.chmod(0o600)
                connection.execute("BEGIN IMMEDIATE")
                connection.execute(_SCHEMA)
                connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
                connection.execute(f"PRAGMA user_version = {_VERSION}")
                connection.execute("COMMIT")
            elif (application, version) != (APPLICATION_ID, _VERSION):
                raise ValueError("it is damaged: it is no file of devices")
            yield connection


def _row(device: LanDevice) -> dict[str, Any]:
    addresses = msgspec.json.encode(device.addresses).decode()
    return {**msgspec.structs.asdict(device), "addresses": addresses}


def _device(row: dict[str, Any]) -> LanDevice:
    addresses = msgspec.json.decode(row["addresses"], type=tuple[DeviceAddress, ...])
    device = msgspec.convert({**row, "addresses": addresses}, LanDevice)
    if normal_mac(device.mac) != device.mac:
        raise ValueError("it is damaged: a device has no hardware address")
    return device
