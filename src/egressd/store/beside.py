"""A connection to the database beside `Database`'s, whose transaction is open while a change is put
in force.

What is written by it belongs to no change. Writes here meanwhile wait for that change to end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, TypeVar

from sqlalchemy import Connection

from egressd.store.connection import engine_on, reported

T = TypeVar("T")

_BUSY_S: Final = 60
"""Seconds to wait for a change in progress: restoring a backup takes long."""


class ConnectionBeside:
    """A connection, with a thread of its own, to the database in `directory`, which `Database.open`
    has made and upgraded. It is opened when it is first used.
    """

    def __init__(self, directory: Path) -> None:
        self._path = directory / "state.db"
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="console-store")
        self._connection: Connection | None = None

    async def do(self, action: str, call: Callable[[Connection], T]) -> T:
        """Return the result of `call` in a transaction. Raises Failed, which names `action`."""
        return await asyncio.get_running_loop().run_in_executor(
            self._thread, self._run, action, call
        )

    async def close(self) -> None:
        """Close. The object cannot be used afterwards."""
        await asyncio.get_running_loop().run_in_executor(self._thread, self._close)
        self._thread.shutdown()

    def _run(self, action: str, call: Callable[[Connection], T]) -> T:
        with reported(action):
            if self._connection is None:
                self._connection = engine_on(self._path).connect()
                self._connection.exec_driver_sql(f"PRAGMA busy_timeout = {_BUSY_S * 1000}")
                self._connection.rollback()
            try:
                with self._connection.begin():
                    return call(self._connection)
            except BaseException:
                # A disk error can leave a connection unusable.
                self._close()
                raise

    def _close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()
