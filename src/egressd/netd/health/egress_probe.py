"""Check if any host answers by an egress: ping hosts, and try to connect to them.

The hosts are resolvers that are known not to answer questions. A host that refuses the connection
counts as an answer.
"""

from __future__ import annotations

import asyncio
import secrets
import socket
from collections.abc import Iterable
from contextlib import suppress
from typing import Final

from egressd.netd.kernel import icmp, uapi

PATIENCE_S: Final = 0.8

_PORT: Final = 53


async def is_anybody_there(addresses: Iterable[str], mark: int) -> bool:
    """True if any of the hosts answers to packets that leave by `mark`. Needs CAP_NET_RAW and
    CAP_NET_ADMIN.
    """
    asked = [
        asyncio.ensure_future(attempt(address, mark))
        for address in addresses
        for attempt in (_pings, _connects)
    ]
    try:
        for answer in asyncio.as_completed(asked):
            if await answer:
                return True
        return False
    finally:
        for task in asked:
            task.cancel()
        await asyncio.gather(*asked, return_exceptions=True)


async def _pings(address: str, mark: int) -> bool:
    with (
        suppress(OSError),
        socket.socket(socket.AF_INET, socket.SOCK_RAW | socket.SOCK_NONBLOCK, 1) as asking,
    ):
        asking.setsockopt(socket.SOL_SOCKET, socket.SO_MARK, mark)
        asking.connect((address, 0))
        number = secrets.randbits(16)
        asking.send(icmp.echo_request(number))
        async with asyncio.timeout(PATIENCE_S):  # its TimeoutError is an OSError
            while True:
                packet = await asyncio.get_running_loop().sock_recv(asking, 128)
                header = packet[(packet[0] & 0x0F) * 4 :]
                if len(header) >= icmp.ECHO.size:
                    kind, _, _, identifier, _ = icmp.ECHO.unpack_from(header)
                    if (kind, identifier) == (uapi.ICMP_ECHOREPLY, number):
                        return True
    return False


async def _connects(address: str, mark: int) -> bool:
    with (
        suppress(OSError),
        socket.socket(socket.AF_INET, socket.SOCK_STREAM | socket.SOCK_NONBLOCK) as asking,
    ):
        asking.setsockopt(socket.SOL_SOCKET, socket.SO_MARK, mark)
        try:
            async with asyncio.timeout(PATIENCE_S):
                await asyncio.get_running_loop().sock_connect(asking, (address, _PORT))
        except ConnectionRefusedError:
            return True
        return True
    return False
