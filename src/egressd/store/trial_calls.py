"""How many API calls each trial license has used up.

A call costs no write: calls are reserved in blocks, and a block is on the disk before the
first of its calls is allowed. A crash loses the rest of a block and never gives a call
twice. The count is a file of its own because the database's one writer may be busy with a
change for seconds, and so that putting a backup back does not bring back used calls.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec

from egressd.model.errors import Failed, OverQuota
from egressd.store.files import replace_durably

BLOCK = 16
"""Calls reserved at a time: what a crash may cost a customer."""


class TrialCalls:
    """The counts, by license."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / "trial-calls"
        self._lock = asyncio.Lock()
        self._reserved: dict[str, int] = {}
        self._spent: dict[str, int] = {}

    def open(self) -> None:
        """Read what earlier runs reserved. Raises Failed when the file cannot be trusted."""
        try:
            self._reserved = msgspec.json.decode(self._path.read_bytes(), type=dict[str, int])
        except FileNotFoundError:
            self._reserved = {}
        except (OSError, ValueError) as error:
            raise Failed("read the count of trial calls", str(error)) from error
        self._spent = dict(self._reserved)

    def left(self, license_id: str, allowed: int) -> int:
        """How many of the license's `allowed` calls were not used up yet."""
        return max(0, allowed - self._spent.get(license_id, 0))

    async def spend(self, license_id: str, allowed: int) -> int:
        """Use up one of the license's `allowed` calls; the calls that are left after it.

        Raises OverQuota when there is none left, and Failed when the count cannot be stored.
        """
        # A caller that goes away must not leave the lock while the file is being written.
        return await asyncio.shield(self._spend(license_id, allowed))

    async def _spend(self, license_id: str, allowed: int) -> int:
        async with self._lock:
            spent = self._spent.get(license_id, 0)
            if spent >= allowed:
                raise OverQuota(f"all {allowed} trial calls of the license are used up")
            if spent >= self._reserved.get(license_id, 0):
                await self._reserve(license_id, min(spent + BLOCK, allowed))
            self._spent[license_id] = spent + 1
            return allowed - spent - 1

    async def _reserve(self, license_id: str, up_to: int) -> None:
        wanted = {**self._reserved, license_id: up_to}
        await asyncio.to_thread(self._write, wanted)
        self._reserved = wanted

    def close(self) -> None:
        """Give back what was reserved and not used. Raises Failed."""
        if self._spent != self._reserved:
            self._write(self._spent)
            self._reserved = dict(self._spent)

    def _write(self, counts: dict[str, int]) -> None:
        try:
            replace_durably(self._path, msgspec.json.encode(counts))
        except OSError as error:
            raise Failed("store the count of trial calls", str(error)) from error
