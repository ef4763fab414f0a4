"""The interfaces to which other programs (igmpproxy, smcroute) make the kernel route multicast.

Read from /proc/net/ip_mr_vif and /proc/net/ip_mr_cache (the kernel's ipmr.c).
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Final

_FOLDER: Final = Path("/proc/self/net")
_OUTGOING_AT: Final = 6
"""The index of the first ``vif:ttl`` field of a cached route."""


def destinations(folder: Path = _FOLDER) -> frozenset[str]:
    """Return the names of the interfaces that multicast routes lead to; none on a kernel without
    them.
    """
    found: set[str] = set()
    with suppress(FileNotFoundError):
        vifs = {
            fields[0]: fields[1]
            for line in (folder / "ip_mr_vif").read_text().splitlines()[1:]
            if len(fields := line.split()) > 1
        }
        for line in (folder / "ip_mr_cache").read_text().splitlines()[1:]:
            for pair in line.split()[_OUTGOING_AT:]:
                found.add(vifs.get(pair.partition(":")[0], ""))
    return frozenset(found - {""})
