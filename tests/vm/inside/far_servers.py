"""VPN servers in a whole machine, behind its ``wan2``, as a process that stays.

``python -m tests.vm.inside.far_servers READY`` runs with the package's Python, and makes the file
READY once all servers answer. See `network` for the addresses.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tests.vm.inside import netns, network
from tests.vm.inside.netns import sh

SERVER: Final = "s1"
USERS: Final[Mapping[str, str]] = {
    "l2tp_a": "192.168.101.11",
    "l2tp_b": "192.168.101.12",
    "pptp_a": "192.168.101.13",
}
"""The user names of the lines, and the addresses that they get."""
PORT: Final = 7


def build() -> None:
    """Make ``wan2``, and all that is behind it."""
    network.RUN.mkdir()
    sh(
        "ip netns add isp; ip -n isp link set lo up;"
        "ip netns exec isp sysctl -qw net.ipv4.ip_forward=1;"
        "ip link add wan2 type veth peer name r2 netns isp;"
        f"ip address add {network.WANS['wan2']}/24 dev wan2; ip link set wan2 up;"
        "ip -n isp address add 10.2.0.1/24 dev r2; ip -n isp link set r2 up;"
        "ip route add default via 10.2.0.1 dev wan2 metric 200"
    )
    address = network.SERVERS[SERVER]
    for name, place in ((SERVER, address), ("web", network.WEB)):
        network.attach(name, place)
    sh(f"ip -n isp route add {network.pool(SERVER)}.0/24 via {address}")


async def serve(ready: Path) -> None:
    """Start the servers, and answer for ever."""
    network.start_server(SERVER, USERS)
    listener = netns.tcp("web")
    listener.bind((network.WEB, PORT))
    server = await asyncio.start_server(_answer, sock=listener)
    ready.touch()
    await server.serve_forever()


async def _answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Greet with the address that is seen, then send all lines back, as the lab's servers do."""
    address, port = writer.get_extra_info("peername")
    writer.write(json.dumps({"ip": address, "port": port}).encode() + b"\n")
    while line := await reader.readline():
        writer.write(line)
    writer.close()


if __name__ == "__main__":
    build()
    asyncio.run(serve(Path(sys.argv[1])))
