"""The place that a server of the API listens at."""

from __future__ import annotations

import socket
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Any


@dataclass(frozen=True)
class ListenAddress:
    """The place that a server listens at: one of this machine's addresses, or all of them, and a
    TCP port.
    """

    address: IPv4Address | IPv6Address
    port: int

    def __str__(self) -> str:
        host = f"[{self.address}]" if self.address.version == 6 else str(self.address)
        return f"{host}:{self.port}"

    @property
    def here(self) -> ListenAddress:
        """The endpoint at which this machine itself reaches the server. A server that listens at
        all addresses listens at the loopback address, too.
        """
        if not self.address.is_unspecified:
            return self
        return ListenAddress(
            ip_address("::1" if self.address.version == 6 else "127.0.0.1"), self.port
        )

    @property
    def socket_address(self) -> tuple[Any, ...]:
        """The endpoint as `socket.socket.getsockname` returns it: the kernel writes addresses in
        another way than Python, and gives an interface as a number. Raises OSError.
        """
        found = socket.getaddrinfo(
            str(self.address), self.port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST
        )
        return found[0][4]

    def bind(self) -> socket.socket:
        """Return a TCP socket that is bound to the endpoint. Raises OSError."""
        family = socket.AF_INET6 if self.address.version == 6 else socket.AF_INET
        bound = socket.socket(family, socket.SOCK_STREAM)
        try:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            bound.bind(self.socket_address)
        except OSError:
            bound.close()
            raise
        return bound
