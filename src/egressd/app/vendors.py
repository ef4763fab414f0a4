"""The makers of network cards, by Debian's ``ieee-data``, where it is installed.

The files are read through for all hardware addresses that are asked for at once, and nothing of
them is kept: they have 4 MB, and a LAN has few makers.
"""

from __future__ import annotations

import asyncio
import csv
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

import structlog

from egressd.formats.dhcp import clean_text

log = structlog.get_logger()

_FOLDERS: Final = (Path("/usr/share/ieee-data"), Path("/var/lib/ieee-data"))
_FILES: Final = {"oui36.csv": 9, "mam.csv": 7, "oui.csv": 6}
"""File -> the hexadecimal digits of its prefixes, the longest ones first."""
_SHARED: Final = "IEEE Registration Authority"
"""The holder of blocks that others have parts of."""


class IeeeVendors:
    """Looks makers up in the files of the first folder that there is."""

    def __init__(self, folders: Iterable[Path] = _FOLDERS) -> None:
        self._folders = tuple(folders)

    async def names(self, macs: Collection[str]) -> Mapping[str, str]:
        """Return the maker of each hardware address that is known."""
        return await asyncio.to_thread(self._names, macs)

    def _names(self, macs: Collection[str]) -> dict[str, str]:
        found: dict[str, str] = {}
        folder = next((each for each in self._folders if each.is_dir()), None)
        if folder is None:
            return found
        digits = {mac: mac.replace(":", "").upper() for mac in macs}
        for name, length in _FILES.items():
            wanted: dict[str, list[str]] = {}
            for mac, text in digits.items():
                if mac not in found:
                    wanted.setdefault(text[:length], []).append(mac)
            for prefix, vendor in _found(folder / name, length, wanted):
                found |= dict.fromkeys(wanted[prefix], vendor)
        return found


def _found(path: Path, length: int, wanted: Collection[str]) -> Iterator[tuple[str, str]]:
    """Yield prefixes among `wanted`, and their holders."""
    try:
        with path.open(encoding="utf-8", errors="replace", newline="") as lines:
            for line in lines:
                # The kind of the prefix has four characters, and a comma follows.
                prefix = line[5 : 5 + length]
                if prefix in wanted:
                    row = next(csv.reader([line]), [])
                    vendor = clean_text(row[2]) if len(row) > 2 else ""
                    if vendor and vendor != _SHARED:
                        yield prefix, vendor
    except FileNotFoundError:
        return
    except OSError as error:
        log.warning("cannot read the makers of network cards", error=str(error))
