"""UDP ports that programs of this machine listen on at any address (proc(5), /proc/net/udp)."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from egressd.netd.kernel import uapi

_TABLE: Final = Path("/proc/self/net/udp")
_ANY: Final = "00000000"
_UNCONNECTED: Final = f"{uapi.TCP_CLOSE:02X}"
"""The state of a socket that receives from every peer."""

_EPHEMERAL: Final = 32_768
"""The first port of Linux's own choice, by default (ip_local_port_range)."""


def listened_on(but: int, table: Path = _TABLE) -> list[int]:
    """Return the ports in this network namespace, in order, without those of the user `but`. Ports
    that the kernel chose (ephemeral ones) are left out: such a socket is a client's.
    """
    found = set()
    for line in table.read_text().splitlines()[1:]:
        fields = line.split()
        address, _, port = fields[1].partition(":")
        if address == _ANY and fields[3] == _UNCONNECTED and int(fields[7]) != but:
            found.add(int(port, 16))
    return sorted(port for port in found if port < _EPHEMERAL)
