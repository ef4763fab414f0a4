"""The time of a packet of a known flow by a line, on the fast and on the slow path."""

from __future__ import annotations

import asyncio
import socket
import statistics
import time
from typing import Final

from tests.support.known_flows import passed_here
from tests.vm.inside import netns, network
from tests.vm.inside.suite import Suite

LINES: Final = ("l2tp_a", "l2tp_d", "pptp_a")
"""L2TP, L2TP with a secret, PPTP."""
_PORT: Final = 7001
_TURNS: Final = 4
_PACKETS: Final = 400
_DATA: Final = bytes(64)


async def a_known_flow_costs_less(suite: Suite) -> None:
    """Time datagrams from a client through router and server to the web server, which all compute
    meanwhile, in turns: an emulated machine's clock counts its instructions.
    """
    sink = netns.udp("web", network.WEB, _PORT)
    try:
        for name in LINES:
            address = suite.clients[name].address
            sending = netns.udp("client", address)
            sending.connect((network.WEB, _PORT))
            times: dict[bool, list[float]] = {True: [], False: []}
            try:
                for _ in range(_TURNS):
                    for is_fast, spent_us in times.items():
                        suite.is_fast = is_fast
                        await suite.apply()
                        spent_us.append(await _time_of_one_us(sending, address, is_fast=is_fast))
            finally:
                sending.close()
            for is_fast, spent_us in times.items():
                path = "fast" if is_fast else "slow"
                suite.figures[f"{name} {path} (µs)"] = statistics.median(spent_us)
    finally:
        sink.close()
        suite.is_fast = True
        await suite.apply()


async def _time_of_one_us(sending: socket.socket, address: str, *, is_fast: bool) -> float:
    """Return the microseconds of one of many datagrams, all of which take one path."""
    while True:
        await asyncio.sleep(1.1)  # one packet a second takes the slow path: let it be the next one
        sending.send(_DATA)
        await asyncio.sleep(0.1)
        before = passed_here(address).up_packets
        began = time.monotonic_ns()
        for _ in range(_PACKETS):
            sending.send(_DATA)
        spent_us = (time.monotonic_ns() - began) / 1000
        if passed_here(address).up_packets - before >= is_fast * _PACKETS:
            return spent_us / _PACKETS
