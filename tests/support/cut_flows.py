"""The set of cut flows, in a table of its own in this network namespace."""

from __future__ import annotations

import re
import struct
import subprocess
from collections.abc import Iterator
from socket import inet_aton
from typing import Final

from egressd.netd.kernel.set_elements import SWAPPED_MAX
from egressd.planner.chains import SETS

TABLE: Final = f"""\
add table inet egressd
add set inet egressd cut_flows {SETS["cut_flows"].declared()}
"""
_UNITS: Final = {"d": 86_400, "h": 3_600, "m": 60, "s": 1, "ms": 0}


def key(number: int) -> bytes:
    """Return the key of a flow of the client 10.0.0.0 plus `number`."""
    client = struct.pack(">IHH", (10 << 24) + number, 40_000, 0)
    return client + inet_aton("192.0.2.1") + struct.pack(">HH", 443, 0)


def keys(first: int, count: int) -> Iterator[list[bytes]]:
    """Yield the keys of so many flows, as many at once as the set takes."""
    for start in range(first, first + count, SWAPPED_MAX):
        yield [key(n) for n in range(start, min(start + SWAPPED_MAX, first + count))]


def listed() -> dict[str, int]:
    """Return the clients of the set's elements, with the seconds until each expires."""
    listing = ["nft", "list", "set", "inet", "egressd", "cut_flows"]
    text = subprocess.run(listing, check=True, capture_output=True, text=True).stdout
    found = re.findall(r"(10\.[\d.]+) \. 40000 \. 192\.0\.2\.1 \. 443 .*? expires (\w+)", text)
    return {client: _seconds(left) for client, left in found}


def _seconds(text: str) -> int:
    parts = re.findall(r"(\d+)(ms|[dhms])", text)
    return sum(int(count) * _UNITS[unit] for count, unit in parts)
