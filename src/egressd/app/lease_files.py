"""The files in which DHCP servers of Debian keep their leases, where they can be read."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

import structlog

from egressd.formats.leases import read_leases
from egressd.model.devices import DhcpLease

log = structlog.get_logger()

_FILES: Final = (
    Path("/var/lib/misc/dnsmasq.leases"),
    Path("/var/lib/kea/kea-leases4.csv"),
    Path("/var/lib/dhcp/dhcpd.leases"),
)
_SIZE_MAX: Final = 16 << 20
"""Characters of a file that are read."""


class LeaseFiles:
    """Reads the files that have changed since the last time."""

    def __init__(self, files: Iterable[Path] = _FILES) -> None:
        self._files = tuple(files)
        self._seen: dict[Path, tuple[int, int]] = {}
        self._failed: set[Path] = set()

    async def read(self) -> Sequence[DhcpLease]:
        """Return the leases of all files that have changed."""
        return await asyncio.to_thread(self._read)

    def _read(self) -> list[DhcpLease]:
        return [lease for path in self._files for lease in self._of(path)]

    def _of(self, path: Path) -> list[DhcpLease]:
        try:
            status = path.stat()
            version = status.st_mtime_ns, status.st_size
            if self._seen.get(path) == version:
                return []
            with path.open(encoding="utf-8", errors="replace") as lines:
                found = read_leases(_first(lines, _SIZE_MAX))
        except FileNotFoundError:
            return []
        except OSError as error:
            if path not in self._failed:
                log.info("cannot read a file of leases", file=str(path), error=str(error))
            self._failed.add(path)
            return []
        self._seen[path] = version
        self._failed.discard(path)
        return found


def _first(lines: Iterable[str], most: int) -> Iterator[str]:
    """Yield the first lines, of at most so many characters."""
    for line in lines:
        most -= len(line)
        if most < 0:
            return
        yield line
