"""The links between the two boxes of a pair, as ways for their words about the site's database.

A message is a datagram of UDP: a `_Question` or an `_Answer` in MessagePack, and behind it its
HMAC-SHA256 (RFC 2104) with a key that is made from the site's. Each question has a nonce, so that a
recorded answer is of no use. A datagram from elsewhere is dropped without a word.
"""

from __future__ import annotations

import asyncio
import hmac
import secrets
import socket
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, Final

import msgspec
import structlog

from egressd.model.errors import Failed
from egressd.model.pair import WORD_PORT, Pair, PairLink
from egressd.service.peer_lease import PeerWord

log = structlog.get_logger()

_PURPOSE: Final = b"egressd: the word of the other box of a pair"
_NONCE_BYTES: Final = 16
_MAC_BYTES: Final = 32
_MESSAGE_MAX: Final = 512
_ASKED_MAX: Final = 32
"""Questions that an answer is taken to."""
_REOPEN_S: Final = 1.0
"""Seconds between attempts to open a socket on a link whose interface or address is missing."""


class _Question(msgspec.Struct, frozen=True, tag="question"):
    sender: str
    """The sender's own address on the LAN."""
    nonce: bytes


class _Answer(msgspec.Struct, frozen=True, tag="answer"):
    sender: str
    nonce: bytes
    word: PeerWord


_ENCODER: Final = msgspec.msgpack.Encoder()
_DECODER: Final[msgspec.msgpack.Decoder[_Question | _Answer]] = msgspec.msgpack.Decoder(
    _Question | _Answer
)


class _Way(asyncio.DatagramProtocol):
    """A socket on one link, which sends to the other box alone."""

    def __init__(self, link: PairLink, take: Callable[[bytes, _Way], None]) -> None:
        self._link = link
        self._take = take
        self._transport: asyncio.DatagramTransport | None = None

    async def open(self) -> None:
        """Open the socket unless it is open. Raises OSError."""
        if self._transport is None:
            opened = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            try:
                device = self._link.interface.encode()
                opened.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, device)
                opened.bind((str(self._link.own), WORD_PORT))
                opened.setblocking(False)
                loop = asyncio.get_running_loop()
                await loop.create_datagram_endpoint(lambda: self, sock=opened)
            except BaseException:
                opened.close()
                raise

    def close(self) -> None:
        """Close the socket; `open` opens another one."""
        closed, self._transport = self._transport, None
        if closed is not None:
            closed.abort()

    def send(self, message: bytes) -> None:
        """Send a message if the socket is open. A failure is as good as a loss."""
        if self._transport is not None:
            self._transport.sendto(message, (str(self._link.peer), WORD_PORT))

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def connection_lost(self, _: Exception | None) -> None:
        self._transport = None

    def datagram_received(self, data: bytes, addr: tuple[str | Any, int]) -> None:
        if addr[0] == str(self._link.peer):
            self._take(data, self)

    def error_received(self, exc: Exception) -> None:
        # A port that is closed at the other end keeps the socket; an interface that is gone does
        # not: the one that takes its name has another index.
        if not isinstance(exc, ConnectionRefusedError):
            self.close()


class PeerWays:
    """Both links of a pair (`egressd.service.peer_lease.PeerLinks`). Times are of `clock`."""

    def __init__(self, pair: Pair, *, key: Callable[[], bytes], clock: Callable[[], float]) -> None:
        """`key` returns the site's key, and raises Failed without one."""
        self._own, self._peer = str(pair.lan.own), str(pair.lan.peer)
        self._key = key
        self._clock = clock
        self._asked: dict[bytes, float] = {}
        """Nonce of a question -> the time at which it was sent."""
        self._links = (pair.lan, pair.sync)
        self._ways: list[_Way] = []

    def ask(self) -> None:
        """Send a question on each link."""
        nonce = secrets.token_bytes(_NONCE_BYTES)
        self._asked[nonce] = self._clock()
        if len(self._asked) > _ASKED_MAX:
            del self._asked[next(iter(self._asked))]
        with suppress(Failed):  # without a key nothing can be said
            message = self._sealed(_Question(self._own, nonce))
            for way in self._ways:
                way.send(message)

    async def answer(
        self, speak: Callable[[], PeerWord], hear: Callable[[PeerWord, float], None]
    ) -> None:
        """Answer questions and pass answers on until cancelled."""
        self._ways = [_Way(link, partial(self._take, speak, hear)) for link in self._links]
        fault = ""
        try:
            while True:
                try:
                    for way in self._ways:
                        await way.open()
                    fault = ""
                except OSError as error:
                    if fault != str(error):
                        fault = str(error)
                        log.warning("a link to the other box cannot be used", error=fault)
                await asyncio.sleep(_REOPEN_S)
        finally:
            for way in self._ways:
                way.close()

    def _take(
        self,
        speak: Callable[[], PeerWord],
        hear: Callable[[PeerWord, float], None],
        data: bytes,
        way: _Way,
    ) -> None:
        match self._opened(data):
            case _Question(sender=self._peer, nonce=nonce) if len(nonce) == _NONCE_BYTES:
                with suppress(Failed):
                    way.send(self._sealed(_Answer(self._own, nonce, speak())))
            case _Answer(sender=self._peer, nonce=nonce, word=word) if nonce in self._asked:
                hear(word, self._asked[nonce])

    def _sealed(self, message: _Question | _Answer) -> bytes:
        body = _ENCODER.encode(message)
        return body + self._mac(body)

    def _opened(self, data: bytes) -> _Question | _Answer | None:
        body, mac = data[:-_MAC_BYTES], data[-_MAC_BYTES:]
        if len(data) > _MESSAGE_MAX:
            return None
        with suppress(Failed, msgspec.DecodeError):
            if hmac.compare_digest(mac, self._mac(body)):
                return _DECODER.decode(body)
        return None

    def _mac(self, body: bytes) -> bytes:
        return hmac.digest(hmac.digest(self._key(), _PURPOSE, "sha256"), body, "sha256")
