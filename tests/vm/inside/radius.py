"""A substitute for the RADIUS server that an L2TP server uses to authenticate users (RFC 2865)."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import socket
import struct
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Final

from tests.vm.inside import netns

ADDRESS: Final = "127.0.0.1"
PORT: Final = 1812

_REQUEST, _ACCEPT, _REJECT = 1, 2, 3
_USER_NAME, _USER_PASSWORD, _CHAP_PASSWORD, _CHAP_CHALLENGE = 1, 2, 3, 60
_HEADER: Final = struct.Struct("!BBH16s")


class Radius:
    """Accepts its users, by PAP or CHAP. The L2TP server assigns the addresses."""

    def __init__(self, secret: str, accounts: Mapping[str, str]) -> None:
        self.asked: list[tuple[str, bool]] = []
        """Each checked proof, ``pap`` or ``chap``, and true if it was correct."""
        self._secret = secret.encode()
        self._accounts = {name.encode(): word.encode() for name, word in accounts.items()}
        self._socket: socket.socket

    def open(self, namespace: str) -> None:
        """Answer in that namespace, from now on."""
        self._socket = netns.udp(namespace, ADDRESS, PORT)
        asyncio.get_running_loop().add_reader(self._socket, self._hear)

    def close(self) -> None:
        """Stop answering."""
        asyncio.get_running_loop().remove_reader(self._socket)
        self._socket.close()

    def _hear(self) -> None:
        with suppress(BlockingIOError):
            while True:
                request, address = self._socket.recvfrom(4096)
                self._socket.sendto(self.answer(request), address)

    def answer(self, request: bytes) -> bytes:
        """Return the answer to an Access-Request."""
        code, number, length, authenticator = _HEADER.unpack_from(request)
        assert (code, length) == (_REQUEST, len(request)), request
        told = dict(_attributes(request[_HEADER.size :]))
        password = self._accounts.get(told[_USER_NAME])
        if _CHAP_PASSWORD in told:
            how, proof = "chap", told[_CHAP_PASSWORD]
            challenge = told.get(_CHAP_CHALLENGE, authenticator)
            expected = proof[:1] + _md5(proof[:1], password or b"", challenge)
        else:
            how, proof = "pap", self._revealed(told[_USER_PASSWORD], authenticator)
            expected = password or b""
        is_known = password is not None and hmac.compare_digest(proof, expected)
        self.asked.append((how, is_known))
        head = struct.pack("!BBH", _ACCEPT if is_known else _REJECT, number, _HEADER.size)
        return head + _md5(head, authenticator, self._secret)

    def _revealed(self, hidden: bytes, authenticator: bytes) -> bytes:
        """Return the password of a PAP request (RFC 2865, 5.2), without its padding."""
        blocks = [hidden[place : place + 16] for place in range(0, len(hidden), 16)]
        clear = (
            bytes(a ^ b for a, b in zip(block, _md5(self._secret, before), strict=True))
            for before, block in zip([authenticator, *blocks], blocks, strict=False)
        )
        return b"".join(clear).rstrip(b"\0")


def _attributes(text: bytes) -> Iterator[tuple[int, bytes]]:
    while text:
        yield text[0], text[2 : text[1]]
        text = text[text[1] :]


def _md5(*parts: bytes) -> bytes:
    return hashlib.md5(b"".join(parts), usedforsecurity=False).digest()
