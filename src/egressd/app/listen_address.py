"""The place that a server of the API listens at."""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address


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
