"""LAN clients: every probe has the client's address as its source."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from egressd_lab import spec as plan
from egressd_lab.host import Host
from egressd_lab.observed import (
    DnsReply,
    EchoReply,
    FloodReport,
    HttpReply,
    Outcome,
    ProbeResult,
    Progress,
)
from egressd_lab.packets import TCP_SYN, UDP
from egressd_lab.spec import Place

TIMEOUT: Final = 5.0
"""Seconds that a probe waits by default."""


class Client:
    """A LAN client: probes with its address as their source."""

    def __init__(self, host: Host, place: Place) -> None:
        self.host = host
        self.place = place
        self.name = place.name
        self.address = place.address
        self.address6 = place.address6

    def http(
        self,
        url: str,
        *,
        method: str = "GET",
        headers: dict[str, str] | None = None,
        upload: int = 0,
        resolver: str = "",
        verify: bool = False,
        ca: str = "",
        source: str | None = None,
        timeout: float = TIMEOUT,
    ) -> HttpReply:
        """Send one HTTP or HTTPS request. See `egressd_lab.inside.probes.http_request`."""
        return self.host.channel.call(
            "http",
            HttpReply,
            url=url,
            method=method,
            source=self._source(source),
            timeout=timeout,
            headers=headers or {},
            upload=upload,
            resolver=resolver,
            verify=verify,
            ca=ca,
        )

    def tcp_echo(
        self,
        text: str,
        address: str = plan.WEB_SERVERS[0],
        port: int = 7,
        *,
        source: str | None = None,
        timeout: float = TIMEOUT,
    ) -> EchoReply:
        """Connect to a TCP echo server and exchange one line."""
        return self.host.channel.call(
            "tcp_echo",
            EchoReply,
            address=address,
            port=port,
            text=text,
            source=self._source(source),
            timeout=timeout,
        )

    def udp_echo(
        self,
        text: str,
        address: str = plan.WEB_SERVERS[0],
        port: int = 7,
        *,
        size: int = 0,
        source: str | None = None,
        source_port: int = 0,
        timeout: float = TIMEOUT,
    ) -> EchoReply:
        """Exchange one datagram of at least `size` bytes with a UDP echo server.

        A `source_port` of 0 is any free port; the kernel may reuse a flow's port before the router
        has forgotten that flow.
        """
        return self.host.channel.call(
            "udp_echo",
            EchoReply,
            address=address,
            port=port,
            text=text,
            size=size,
            source=self._source(source),
            source_port=source_port,
            timeout=timeout,
        )

    def dns(
        self,
        name: str,
        server: str,
        kind: str = "A",
        *,
        tcp: bool = False,
        source: str | None = None,
        timeout: float = TIMEOUT,
    ) -> DnsReply:
        """Query a resolver."""
        return self.host.channel.call(
            "dns",
            DnsReply,
            name=name,
            server=server,
            kind=kind,
            tcp=tcp,
            source=self._source(source),
            timeout=timeout,
        )

    def ping(
        self,
        address: str = plan.WEB_SERVERS[0],
        text: str = "",
        *,
        source: str | None = None,
        timeout: float = TIMEOUT,
    ) -> Outcome:
        """Send one ICMP or ICMPv6 echo request."""
        source = (self.address6 if ":" in address else self.address) if source is None else source
        return self.host.channel.call(
            "ping", Outcome, address=address, text=text, source=source, timeout=timeout
        )

    def raw(
        self,
        source: str,
        destination: str,
        *,
        protocol: int = UDP,
        port: int = 9,
        text: str = "",
        source_port: int = 40_000,
        flags: int = TCP_SYN,
    ) -> Outcome:
        """Send one packet with any source address. Success means only that it was sent.

        ``flags`` are those of a TCP segment.
        """
        return self.host.channel.call(
            "raw",
            Outcome,
            source=source,
            destination=destination,
            protocol=protocol,
            port=port,
            text=text,
            source_port=source_port,
            flags=flags,
        )

    def every_way(
        self,
        token: str,
        *,
        address: str = plan.WEB_SERVERS[0],
        address6: str = plan.SERVERS6[0],
        resolver: str = plan.RESOLVERS["google"],
        timeout: float = 2.0,
    ) -> dict[str, ProbeResult]:
        """Try every known way out at once, each with `token`. Return the results by kind."""
        results = self.host.channel.call(
            "every_way",
            list[ProbeResult],
            token=token,
            address=address,
            address6=address6 if self.address6 else "",
            resolver=resolver,
            source=self.address,
            source6=self.address6,
            timeout=timeout,
        )
        return {result.kind: result for result in results}

    def connect(
        self, address: str = plan.WEB_SERVERS[0], port: int = 7, *, timeout: float = TIMEOUT
    ) -> Connection:
        """Open a connection to a TCP echo server that stays open. Raises Failed if it cannot be
        made.
        """
        number = self.host.channel.call(
            "connect", int, address=address, port=port, source=self.address, timeout=timeout
        )
        return Connection(self.host, number)

    def download(
        self,
        url: str,
        *,
        resolver: str = "",
        verify: bool = False,
        timeout: float = TIMEOUT,
    ) -> Download:
        """Begin a download in the background. Raises Failed if it does not begin."""
        number = self.host.channel.call(
            "download",
            int,
            url=url,
            source=self.address,
            resolver=resolver,
            timeout=timeout,
            verify=verify,
        )
        return Download(self.host, number)

    def flood(
        self,
        token: str,
        *,
        kind: str = "udp",
        address: str = plan.WEB_SERVERS[0],
        port: int = plan.DISCARD_PORT,
        rate: float = 1000,
        size: int = 0,
    ) -> Flood:
        """Send numbered packets at `rate` a second until stopped: UDP, TCP (SYN) or ICMP."""
        return flood_from(
            [(self, token)], kind=kind, address=address, port=port, rate=rate, size=size
        )

    def _source(self, source: str | None) -> str:
        return self.address if source is None else source


class Connection:
    """A client's open connection."""

    def __init__(self, host: Host, number: int) -> None:
        self._host = host
        self._number = number

    def exchange(self, text: str, timeout: float = TIMEOUT) -> EchoReply:
        """Send a line and wait for it to come back."""
        return self._host.channel.call(
            "exchange", EchoReply, number=self._number, text=text, timeout=timeout
        )

    def state(self) -> str:
        """Return ``open``, ``closed`` or an errno's name, without sending anything."""
        return self._host.channel.call("state", str, number=self._number)

    def close(self) -> None:
        """Close the connection."""
        self._host.channel.call("disconnect", type(None), number=self._number)


class Download:
    """A client's download in the background."""

    def __init__(self, host: Host, number: int) -> None:
        self._host = host
        self._number = number

    def progress(self) -> Progress:
        """Return the progress until now."""
        return self._host.channel.call("progress", Progress, number=self._number)

    def stop(self) -> Progress:
        """End the download, and return its progress."""
        return self._host.channel.call("stop_download", Progress, number=self._number)


class Flood:
    """A running flood."""

    def __init__(self, host: Host, number: int) -> None:
        self._host = host
        self._number = number

    def report(self) -> FloodReport:
        """Return the number of packets sent until now."""
        return self._host.channel.call("flood_report", FloodReport, number=self._number)

    def stop(self) -> FloodReport:
        """End the flood, and return its report."""
        return self._host.channel.call("stop_flood", FloodReport, number=self._number)


def flood_from(
    senders: Sequence[tuple[Client, str]],
    *,
    kind: str = "udp",
    address: str = plan.WEB_SERVERS[0],
    port: int = plan.DISCARD_PORT,
    rate: float = 1000,
    size: int = 0,
) -> Flood:
    """Start one flood from several clients of the same namespace, each with a token of its own.

    `rate` is that of all together; they take turns.
    """
    host = senders[0][0].host
    if any(client.host is not host for client, _ in senders):
        raise ValueError("the clients of one flood must share a namespace")
    number = host.channel.call(
        "flood",
        int,
        kind=kind,
        address=address,
        port=port,
        rate=rate,
        size=size,
        lanes=[(client.address, token) for client, token in senders],
    )
    return Flood(host, number)
