"""Probes: each makes one request to the outside, and returns its outcome."""

from __future__ import annotations

import http.client
import json
import os
import socket
import ssl
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final
from urllib.parse import SplitResult, urlsplit

from egressd_lab import packets
from egressd_lab.inside.sockets import (
    Deadline,
    ask,
    connect_tcp,
    fault,
    open_socket,
    resolve,
)
from egressd_lab.observed import DnsReply, EchoReply, HttpReply, Outcome, ProbeResult
from egressd_lab.pattern import PATTERN, piece, pieces

BODY_KEPT: Final = 64 * 1024
_ETHERTYPES: Final = {4: 0x0800, 6: 0x86DD}
_FAULTS: Final = (OSError, ValueError, EOFError, http.client.HTTPException)


def dns(*, name: str, server: str, kind: str, tcp: bool, source: str, timeout: float) -> DnsReply:
    """Query `server` for `name`."""
    deadline = Deadline(timeout)
    try:
        return ask(name, server, kind=kind, tcp=tcp, source=source, deadline=deadline)
    except _FAULTS as error:
        return DnsReply(error=fault(error), seconds=deadline.elapsed)


def http_request(
    *,
    url: str,
    method: str,
    source: str,
    timeout: float,
    headers: dict[str, str],
    upload: int,
    resolver: str,
    verify: bool,
    ca: str,
) -> HttpReply:
    """Send one request on a connection of its own.

    `upload` bytes of the pattern are sent as its body. With `verify` the answer's body must be the
    pattern, and is not kept. `ca` is a file of certificates to trust; if it is empty, any
    certificate is trusted.
    """
    deadline = Deadline(timeout)
    try:
        connection = open_http(url, source, resolver, ca, deadline)
        # http.client releases a socket whose answer ends with the connection.
        with connection.sock as sock:
            parts = urlsplit(url)
            sent = {"Connection": "close", "Content-Length": str(upload)} | headers
            if not upload:
                del sent["Content-Length"]
            connection.request(method, target_of(parts), pieces(upload) if upload else None, sent)
            response = connection.getresponse()
            body, size = bytearray(), 0
            for chunk in body_of(sock, response, lambda: deadline.left):
                if verify:
                    check_piece(chunk, size)
                size += len(chunk)
                if not verify and len(body) < BODY_KEPT:
                    body += chunk[: BODY_KEPT - len(body)]
    except _FAULTS as error:
        return HttpReply(error=fault(error), seconds=deadline.elapsed)
    return HttpReply(
        seconds=deadline.elapsed,
        status=response.status,
        body=body.decode("utf-8", "replace"),
        size=size,
    )


def open_http(
    url: str, source: str, resolver: str, ca: str, deadline: Deadline
) -> http.client.HTTPConnection:
    """Return an open connection to the URL's server."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    port = parts.port or (443 if parts.scheme == "https" else 80)
    sock = connect_tcp(resolve(host, resolver, source, deadline), port, source, deadline)
    if parts.scheme == "https":
        context = ssl.create_default_context(cafile=ca) if ca else _trusting()
        try:
            sock.settimeout(deadline.left)
            sock = context.wrap_socket(sock, server_hostname=host)
        except OSError:
            sock.close()
            raise
    connection = http.client.HTTPConnection(host, port)
    connection.sock = sock
    return connection


def _trusting() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def target_of(parts: SplitResult) -> str:
    """Return the request target of a URL."""
    return (parts.path or "/") + (f"?{parts.query}" if parts.query else "")


def body_of(
    sock: socket.socket, response: http.client.HTTPResponse, patience: Callable[[], float]
) -> Iterator[bytes]:
    """Yield the body as it arrives, in pieces of at most 1 MiB, waiting `patience` seconds for
    each.

    Raises EOFError if it is cut short.
    """
    due = response.length
    got = 0
    while due is None or got < due:
        sock.settimeout(patience())
        chunk = response.read1(len(PATTERN))
        if not chunk:
            if due is not None:
                raise EOFError
            return
        got += len(chunk)
        yield chunk


def tcp_echo(*, address: str, port: int, text: str, source: str, timeout: float) -> EchoReply:
    """Connect to an echo server, read its greeting, exchange one line."""
    deadline = Deadline(timeout)
    try:
        with connect_tcp(address, port, source, deadline) as sock:
            sock.sendall(f"{text}\n".encode())
            stream = sock.makefile("rb")
            greeting = stream.readline()
            line = stream.readline()
            if not line.endswith(b"\n"):
                return EchoReply(error="closed", seconds=deadline.elapsed)
            seen = json.loads(greeting)["ip"]
            check_echo(line.rstrip(b"\n"), text.encode())
    except _FAULTS as error:
        return EchoReply(error=fault(error), seconds=deadline.elapsed)
    return EchoReply(seconds=deadline.elapsed, seen=seen, text=text, size=len(line))


def udp_echo(
    *,
    address: str,
    port: int,
    text: str,
    size: int,
    source: str,
    source_port: int = 0,
    timeout: float,
) -> EchoReply:
    """Send one datagram to an echo server and wait for it to come back.

    A `size` above the text's is filled by repeating the text, so that each fragment of a large
    datagram carries a whole token.
    """
    deadline = Deadline(timeout)
    payload = _filled(text, size)
    try:
        with open_socket(address, socket.SOCK_DGRAM, source, source_port=source_port) as sock:
            sock.settimeout(deadline.left)
            sock.connect((address, port))
            sock.send(payload)
            head, _, echoed = sock.recv(65_535).partition(b"\n")
        check_echo(echoed, payload)
        seen = json.loads(head)["ip"]
    except _FAULTS as error:
        return EchoReply(error=fault(error), seconds=deadline.elapsed)
    return EchoReply(seconds=deadline.elapsed, seen=seen, text=text, size=len(payload))


def check_echo(line: bytes, sent: bytes) -> None:
    """Raise ValueError unless the echoed line equals the one that was sent."""
    if line != sent:
        raise ValueError("the echo is not what was sent")


def check_piece(chunk: bytes, offset: int) -> None:
    """Raise ValueError unless `chunk` equals the pattern at `offset`."""
    if chunk != piece(offset, len(chunk)):
        raise ValueError(f"the body differs within {len(chunk)} bytes from {offset}")


def _filled(text: str, size: int) -> bytes:
    raw = text.encode()
    return (raw * (size // len(raw) + 1))[:size] if size > len(raw) else raw


def ping(*, address: str, text: str, source: str, timeout: float) -> Outcome:
    """Send one ICMP or ICMPv6 echo request that carries `text`, and wait for the reply."""
    deadline = Deadline(timeout)
    is_v6 = ":" in address
    protocol = packets.ICMPV6 if is_v6 else packets.ICMP
    kind = packets.ICMPV6_ECHO if is_v6 else packets.ICMP_ECHO
    payload = os.urandom(8) + text.encode()
    identifier = int.from_bytes(payload[:2])
    request = packets.icmp_echo(identifier, 1, payload, kind=kind)
    try:
        with open_socket(address, socket.SOCK_RAW, source, protocol) as sock:
            sock.connect((address, 0))
            sock.send(request)
            while True:
                sock.settimeout(deadline.left)
                got = sock.recv(65_535)
                icmp = got if is_v6 else got[(got[0] & 0x0F) * 4 :]
                if icmp[0] == (129 if is_v6 else 0) and icmp[8:] == payload:
                    return Outcome(seconds=deadline.elapsed)
    except OSError as error:
        return Outcome(error=fault(error), seconds=deadline.elapsed)


def raw(
    *,
    source: str,
    destination: str,
    protocol: int,
    port: int,
    text: str,
    source_port: int,
    flags: int,
) -> Outcome:
    """Send one IPv4 packet from any `source` at all, without waiting for an answer."""
    body = text.encode()
    match protocol:
        case packets.UDP:
            body = packets.udp(source_port, port, body)
        case packets.TCP:
            body = packets.tcp(source, destination, source_port, port, body, flags=flags)
        case packets.ICMP:
            body = packets.icmp_echo(source_port, 1, body)
    packet = packets.ipv4(source, destination, protocol, body)
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW) as sock:
            sock.sendto(packet, (destination, 0))
    except OSError as error:
        return Outcome(error=fault(error))
    return Outcome()


def emit(*, interface: str, packets: list[str], mac: str) -> None:
    """Send IP packets with any content by an interface to a neighbour: all in hexadecimal.

    Raises OSError.
    """
    with socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM) as sock:
        for packet in map(bytes.fromhex, packets):
            kind = _ETHERTYPES[packet[0] >> 4]
            sock.sendto(packet, (interface, kind, 0, 0, bytes.fromhex(mac)))


def every_way(
    *,
    token: str,
    address: str,
    address6: str,
    resolver: str,
    source: str,
    source6: str,
    timeout: float,
) -> list[ProbeResult]:
    """Try all kinds of traffic that are known to leak, at once.

    Every probe carries `token`: in a path, a line, a payload or a DNS name. The IPv6 probes are
    left out if `address6` is empty.
    """
    name = f"{token}.test"
    four = {"source": source, "timeout": timeout}
    six = {"source": source6, "timeout": timeout}
    web = {"method": "GET", "headers": {}, "upload": 0, "resolver": "", "verify": False, "ca": ""}
    echo = {"text": token, "size": 0}
    tries: dict[str, tuple[Callable[..., Outcome], dict[str, Any]]] = {
        "tcp/80": (http_request, {"url": f"http://{address}/{token}", **web, **four}),
        "tcp/443": (http_request, {"url": f"https://{address}/{token}", **web, **four}),
        "udp/7 in fragments": (
            udp_echo,
            {"address": address, "port": 7, "text": token, "size": 3000, **four},
        ),
        "icmp": (ping, {"address": address, "text": token, **four}),
    }
    for port in (7, 853):
        tries[f"tcp/{port}"] = (tcp_echo, {"address": address, "port": port, "text": token, **four})
    for port in (7, 443, 853):
        tries[f"udp/{port}"] = (udp_echo, {"address": address, "port": port, **echo, **four})
    for kind, tcp in (("udp/53", False), ("tcp/53", True)):
        tries[kind] = (dns, {"name": name, "server": resolver, "kind": "A", "tcp": tcp, **four})
    if address6:
        tries["tcp6/80"] = (http_request, {"url": f"http://[{address6}]/{token}", **web, **six})
        tries["udp6/7"] = (udp_echo, {"address": address6, "port": 7, **echo, **six})
        tries["udp6/53"] = (
            dns,
            {"name": name, "server": address6, "kind": "A", "tcp": False, **six},
        )
        tries["icmp6"] = (ping, {"address": address6, "text": token, **six})
    with ThreadPoolExecutor(len(tries)) as pool:
        waiting = {kind: pool.submit(probe, **how) for kind, (probe, how) in tries.items()}
    return [_result(kind, future.result()) for kind, future in waiting.items()]


def _result(kind: str, outcome: Any) -> ProbeResult:
    seen = getattr(outcome, "seen", "")
    return ProbeResult(kind=kind, error=outcome.error, seconds=outcome.seconds, seen=seen)
