"""One HTTP request through an engine's SOCKS5 listener, up to the response's head."""

from __future__ import annotations

import asyncio
import ssl
import struct
from ipaddress import ip_address
from typing import Final

import h11
import msgspec

from egressd.model.wording import Sentence, say
from egressd.netd.engine.reasons import socks_reply
from egressd.netd.engine.urls import Url

_READ_BYTES: Final = 16_384
_UNLIMITED_S: Final = 86_400.0
"""Seconds of time limits that must not apply: the caller's limit is the one that counts."""

_CLOSED: Final = say("node-closed-without-answer")


class Proxy(msgspec.Struct, frozen=True):
    """A SOCKS5 listener on 127.0.0.1 that selects outbounds by user name (RFC 1929)."""

    port: int
    user: str
    password: str


class FetchFailure(Exception):
    """The request failed; ``reason`` says why. The engine's log may have more details."""

    def __init__(self, reason: Sentence) -> None:
        super().__init__(reason)
        self.reason = reason


class Progress:
    """The stage that a request has reached, for the error text of a time-out."""

    stage = say("stage-connecting")


async def fetch(
    proxy: Proxy, url: Url, tls: ssl.SSLContext, progress: Progress, read_max: int = 0
) -> bytes:
    """Request `url` through `proxy`; return the first `read_max` bytes of the page. With 0, use
    HEAD.

    Any final response counts, regardless of its status, as users of url-test expect (sing-box and
    mihomo do the same); redirects are not followed. Raises FetchFailure.
    """
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
    except OSError as error:
        raise FetchFailure(say("engine-deaf", reason=str(error))) from error
    try:
        await socks_connect(reader, writer, proxy, url.host, url.port)
        if url.is_https:
            progress.stage = say("stage-tls")
            await writer.start_tls(
                tls, server_hostname=url.host, ssl_handshake_timeout=_UNLIMITED_S
            )
        progress.stage = say("stage-waiting")
        return await _exchange(reader, writer, url, read_max)
    except ssl.SSLCertVerificationError as error:
        raise FetchFailure(say("tls-failure", reason=error.verify_message)) from error
    except ssl.SSLEOFError as error:
        raise FetchFailure(_CLOSED) from error
    except ssl.SSLError as error:
        raise FetchFailure(say("tls-failure", reason=error.reason or str(error))) from error
    except (asyncio.IncompleteReadError, OSError) as error:
        raise FetchFailure(_CLOSED) from error
    finally:
        # Not close(): the remaining data is of no interest, and TLS would wait for the peer's
        # close_notify.
        writer.transport.abort()


async def socks_connect(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, proxy: Proxy, host: str, port: int
) -> None:
    """Connect by RFC 1928 and 1929. The engine answers once the node is connected, or has
    failed. Raises FetchFailure, and OSError or IncompleteReadError if the engine goes away.
    """
    user, password = proxy.user.encode(), proxy.password.encode()
    login = b"\x01" + bytes([len(user)]) + user + bytes([len(password)]) + password
    # All messages at once: the engine is known to support this method and accept this user.
    writer.write(b"\x05\x01\x02" + login + b"\x05\x01\x00" + _address(host, port))
    method = await reader.readexactly(2)
    status = await reader.readexactly(2)
    if method != b"\x05\x02" or status[1] != 0:
        raise FetchFailure(say("engine-refuses-user"))
    reply = await reader.readexactly(4)
    if reply[1] != 0:
        raise FetchFailure(socks_reply(reply[1]))
    match reply[3]:
        case 1:
            rest = 4
        case 4:
            rest = 16
        case _:
            rest = (await reader.readexactly(1))[0]
    await reader.readexactly(rest + 2)


def _address(host: str, port: int) -> bytes:
    """Return the request's address: a name goes to the node as a name."""
    number = struct.pack(">H", port)
    try:
        address = ip_address(host)
    except ValueError:
        name = host.encode("ascii")
        return b"\x03" + bytes([len(name)]) + name + number
    return (b"\x01" if address.version == 4 else b"\x04") + address.packed + number


async def _exchange(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, url: Url, read_max: int
) -> bytes:
    connection = h11.Connection(h11.CLIENT)
    fields = [("Host", url.authority), ("User-Agent", "egressd"), ("Accept", "*/*")]
    request = h11.Request(
        method="GET" if read_max else "HEAD",
        target=url.target,
        headers=[*fields, ("Connection", "close")],
    )
    writer.write(connection.send(request) or b"")
    has_answered = False
    page = b""
    try:
        while True:
            event = connection.next_event()
            if isinstance(event, h11.Data):
                page += event.data
            if isinstance(event, h11.EndOfMessage) or (
                len(page) >= read_max and isinstance(event, h11.Response | h11.Data)
            ):
                return page[:read_max]
            if event is h11.NEED_DATA:
                data = await reader.read(_READ_BYTES)
                if not (data or has_answered):
                    raise FetchFailure(_CLOSED)
                has_answered = True
                connection.receive_data(data)
    except h11.RemoteProtocolError as error:
        raise FetchFailure(say("site-no-http", reason=str(error))) from error
