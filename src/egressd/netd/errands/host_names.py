"""The look-up of names in a runner: each host that is looked up gets a listener on the loopback.

The gate has the listener's descriptor, so that names are resolved, and connections made, by the
errand's ways alone. An address that is connected to without a look-up is unreachable.
"""

from __future__ import annotations

import socket

from egressd.netd.errands.order import WantedHost, pack

Answer = tuple[socket.AddressFamily, socket.SocketKind, int, str, tuple[str, int]]


class HostNames:
    """Replaces the look-up of names: each host's port gets a listener on the loopback."""

    def __init__(self, channel: socket.socket) -> None:
        self._channel = channel
        self._known: dict[tuple[str, int], int] = {}

    def install(self) -> None:
        """Replace `socket.getaddrinfo`, and what else asks for addresses."""
        socket.getaddrinfo = self.getaddrinfo  # type: ignore[assignment]

    def getaddrinfo(  # noqa: PLR0917 - as Python's own
        self,
        host: bytes | str | None,
        port: bytes | str | int | None,
        family: int = 0,
        type: int = 0,  # noqa: A002
        proto: int = 0,
        flags: int = 0,
    ) -> list[Answer]:
        """Return the address of the host's listener."""
        del flags, proto
        name = host.decode() if isinstance(host, bytes) else host or ""
        if family not in (0, socket.AF_INET) or type not in (0, socket.SOCK_STREAM):
            raise socket.gaierror(socket.EAI_FAMILY, "only TCP by IPv4 leads out of here")
        number = _port(port)
        there = self._listener(name, number)
        kind = socket.SOCK_STREAM
        return [(socket.AF_INET, kind, socket.IPPROTO_TCP, "", ("127.0.0.1", there))]

    def _listener(self, host: str, port: int) -> int:
        """Return the port of the host's listener on the loopback."""
        known = self._known.get((host, port))
        if known is not None:
            return known
        with socket.create_server(("127.0.0.1", 0)) as listener:
            there: int = listener.getsockname()[1]
            said = pack(WantedHost(host=host, port=port))
            socket.send_fds(self._channel, [said], [listener.fileno()])
        self._known[host, port] = there
        return there


def _port(port: bytes | str | int | None) -> int:
    if isinstance(port, int):
        return port
    text = port.decode() if isinstance(port, bytes) else port or "0"
    return int(text) if text.isdecimal() else socket.getservbyname(text)
