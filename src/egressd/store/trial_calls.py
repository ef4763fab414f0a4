"""The number of API calls that each trial license has used up.

Each call is on the disk before it is allowed, so that a crash neither restores a used call nor
loses one. The count is a file of its own because the database's one writer may be busy with a
change for seconds, and so that restoring a backup does not bring back used calls.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec

from egressd.model.errors import Failed, OverQuota
from egressd.model.faults import fault
from egressd.store.files import replace_durably


class TrialCalls:
    """The counts, by license."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / "trial-calls"
        self._lock = asyncio.Lock()
        self._spent: dict[str, int] = {}

    def open(self) -> None:
        """Read the calls that earlier runs used up. Raises Failed if the file cannot be trusted."""
        try:
            self._spent = msgspec.json.decode(self._path.read_bytes(), type=dict[str, int])
        except FileNotFoundError:
            self._spent = {}
        except (OSError, ValueError) as error:
            raise Failed("read the count of trial calls", str(error)) from error

    def left(self, license_id: str, allowed: int) -> int:
        """Return the number of the license's `allowed` calls that are not used up."""
        return max(0, allowed - self._spent.get(license_id, 0))

    async def spend(self, license_id: str, allowed: int) -> int:
        """Use up one of the license's `allowed` calls, and return the number left after it.

        Raises OverQuota if none is left, and Failed if the count cannot be stored.
        """
        # A cancelled caller must not release the lock while the file is being written.
        return await asyncio.shield(self._spend(license_id, allowed))

    async def _spend(self, license_id: str, allowed: int) -> int:
        async with self._lock:
            left = self.left(license_id, allowed)
            if not left:
                raise OverQuota(fault("", "trial-calls-used-up", number=allowed))
            counts = {**self._spent, license_id: self._spent.get(license_id, 0) + 1}
            await asyncio.to_thread(self._write, counts)
            self._spent = counts
            return left - 1

    def _write(self, counts: dict[str, int]) -> None:
        try:
            replace_durably(self._path, msgspec.json.encode(counts))
        except OSError as error:
            raise Failed("store the count of trial calls", str(error)) from error
