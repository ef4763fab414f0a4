"""Backups: the whole state as a file, and a file restored as one change."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import BinaryIO, Final

import msgspec

from egressd.model.desired import DesiredState
from egressd.model.drafts import Outcome
from egressd.model.errors import Failed, Invalid, OverQuota
from egressd.model.faults import fault
from egressd.service.ledger import Ledger, Proposal
from egressd.service.ports import Archive
from egressd.service.restored import RestoreChecks

_PREFIX: Final = ".backup-"


class Restored(msgspec.Struct, frozen=True, kw_only=True):
    """The number of each kind of row in a backup that was restored."""

    rules: int
    nodes: int
    lines: int
    services: int


class Backups:
    """Writes and reads backups in private directories that it makes in `folder`."""

    def __init__(
        self,
        ledger: Ledger,
        archive: Archive,
        folder: Path,
        quota: Callable[[], int],
        checks: RestoreChecks,
    ) -> None:
        """`quota` returns how many proxy services the license allows at the moment."""
        self._quota = quota
        self._checks = checks
        self._ledger = ledger
        self._archive = archive
        self._folder = folder
        self._reading = asyncio.Lock()
        """Held while reading: it takes a process that may use much memory, so one runs at a
        time."""

    def tidy(self) -> None:
        """Remove files that a killed process left behind. Once, at start."""
        for left in self._folder.glob(f"{_PREFIX}*"):
            shutil.rmtree(left, ignore_errors=True)

    async def export(self) -> BinaryIO:
        """Return a snapshot of the state, as an open file without a name, for the caller to close.
        Changes go on meanwhile. Raises Failed.
        """
        with self._scratch() as path:
            await self._archive.backup(path)
            return path.open("rb")

    async def restore(
        self, chunks: AsyncIterable[bytes], *, older: bool = False
    ) -> Outcome[Restored]:
        """Restore the backup whose bytes `chunks` are; it is in force on return.

        The status is ``restoring`` while the change is made. Only differences are applied, so
        clients whose rules are the same are not interrupted. With `older`, names and configurations
        of nodes may have the form that an older egressd accepted. Raises Invalid for a file that is
        no backup, is a newer egressd's, or has content that the API would refuse; OverQuota if it
        has more proxy services than allowed; Failed as every change does. Nothing has changed then.
        """
        with self._scratch() as path:
            await _write(path, chunks)
            try:
                async with self._reading:
                    wanted = await self._archive.read_backup(path)
            except Failed as error:
                raise Invalid(fault("", "no-backup", reason=error.cause)) from error
        holds = Restored(
            rules=len(wanted.rules),
            nodes=len(wanted.nodes),
            lines=len(wanted.lines),
            services=len(wanted.services),
        )

        def build(state: DesiredState) -> Proposal[Restored]:
            # Services from an earlier license, or another device's, remain; none is added to them.
            allowed = max(self._quota(), len(state.services))
            if len(wanted.services) > allowed:
                held = len(wanted.services)
                raise OverQuota(fault("", "backup-over-quota", number=held, quota=allowed))
            self._checks.refuse(wanted, state, older=older)
            return Proposal(state.edits_to(wanted), holds)

        return await self._ledger.change(build, is_large=True, is_restore=True)

    @contextmanager
    def _scratch(self) -> Iterator[Path]:
        """Yield the path of a file to create, which no other user can reach and which is
        removed.
        """
        try:
            with TemporaryDirectory(prefix=_PREFIX, dir=self._folder) as private:
                yield Path(private) / "state.db"
        except OSError as error:
            raise Failed("keep a backup for a moment", error.strerror or str(error)) from error


async def _write(path: Path, chunks: AsyncIterable[bytes]) -> None:
    with path.open("xb") as file:
        async for chunk in chunks:
            await asyncio.to_thread(file.write, chunk)
