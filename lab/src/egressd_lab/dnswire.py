"""The small part of DNS that the lab uses: one question, with addresses as the answer (RFC 1035).

A query for another type gets an answer without data (RFC 2308).

Pure. Used by the lab's resolvers and by its clients' probes, so that neither needs more than the
standard library.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Sequence
from typing import Final

import msgspec

A: Final = 1
AAAA: Final = 28
HTTPS: Final = 65
_SOA: Final = 6
_OPT: Final = 41
TYPES: Final = {"A": A, "AAAA": AAAA, "TXT": 16, "PTR": 12, "HTTPS": HTTPS, "SVCB": 64, "MX": 15}
_TYPE_NAMES: Final = {number: name for name, number in TYPES.items()}

NOERROR: Final = 0
NXDOMAIN: Final = 3
RCODES: Final = ("NOERROR", "FORMERR", "SERVFAIL", "NXDOMAIN", "NOTIMP", "REFUSED")

_HEAD: Final = struct.Struct("!HHHHHH")
_RECORD: Final = struct.Struct("!HHIH")
_QUERY_FLAGS: Final = 0x0100  # recursion desired
_REPLY_FLAGS: Final = 0x8180  # response, recursion desired and available
_DNSSEC_OK: Final = 0x8000
_UDP_SIZE: Final = 1232
_ALPN, _IPV4HINT, _IPV6HINT = 1, 4, 6  # RFC 9460, 14.3.2
_POINTER: Final = 0xC0
_POINTERS_MAX: Final = 32
TTL: Final = 1
"""Seconds. Short, so that no cache answers a test of resolvers."""


class Question(msgspec.Struct, frozen=True):
    """The question of a query. ``end`` is the end of its question section."""

    number: int
    name: str
    type: int
    end: int
    edns: bool = False
    """True if the query has an OPT record (RFC 6891), which its answer must then have too."""
    dnssec: bool = False
    """True if the OPT record asks for signatures."""

    @property
    def type_name(self) -> str:
        """``A``, ``AAAA``, … or ``TYPE<n>`` (RFC 3597)."""
        return _TYPE_NAMES.get(self.type, f"TYPE{self.type}")


class Answer(msgspec.Struct, frozen=True):
    """The content of a reply."""

    number: int
    rcode: str
    addresses: tuple[str, ...]
    truncated: bool


def encode_query(number: int, name: str, kind: str) -> bytes:
    """Return a query for `name`. Raises ValueError for a label that is empty or too long."""
    question = _encode_name(name) + struct.pack("!HH", TYPES[kind], 1)
    return _HEAD.pack(number, _QUERY_FLAGS, 1, 0, 0, 0) + question


def decode_query(message: bytes) -> Question:
    """Return the first question of a query. Raises ValueError if it has none, or is malformed."""
    try:
        number, flags, questions, _, _, extra = _HEAD.unpack_from(message)
        if flags & 0x8000 or questions < 1:
            raise ValueError("not a query")
        name, end = _decode_name(message, _HEAD.size)
        (kind,) = struct.unpack_from("!H", message, end)
        edns = dnssec = False
        if extra:
            record, _, flags, _ = _RECORD.unpack_from(message, _decode_name(message, end + 4)[1])
            edns = record == _OPT
            dnssec = edns and bool(flags & _DNSSEC_OK)
    except (struct.error, IndexError) as error:
        raise ValueError("the query is cut short") from error
    return Question(number, name, kind, end + 4, edns, dnssec)


def encode_reply(query: bytes, question: Question, addresses: Sequence[str], rcode: int) -> bytes:
    """Return the reply to `query`.

    It has those of `addresses` that are of the queried type, as hints for HTTPS; if there are none,
    it has the root's SOA record.
    """
    asked = {A: (4,), AAAA: (16,), HTTPS: (4, 16)}.get(question.type, ())
    raw = [data for data in map(_packed, addresses) if len(data) in asked]
    data = [_service(raw)] if question.type == HTTPS and raw else raw
    name = struct.pack("!H", _POINTER << 8 | _HEAD.size)
    records = b"".join(_record(name, question.type, 1, TTL, each) for each in data)
    if not data:
        numbers = struct.pack("!5I", 1, 3600, 600, 86400, TTL)
        records += _record(b"\0", _SOA, 1, TTL, b"\0\0" + numbers)
    if question.edns:
        flags = _DNSSEC_OK if question.dnssec else 0
        records += _record(b"\0", _OPT, _UDP_SIZE, flags, b"")
    counts = (1, len(data), int(not data), int(question.edns))
    head = _HEAD.pack(question.number, _REPLY_FLAGS | rcode, *counts)
    return head + query[_HEAD.size : question.end] + records


def _packed(address: str) -> bytes:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    return socket.inet_pton(family, address)


def _record(name: bytes, kind: int, where: int, ttl: int, data: bytes) -> bytes:
    return name + _RECORD.pack(kind, where, ttl, len(data)) + data


def _service(addresses: Sequence[bytes]) -> bytes:
    """Return the data of an HTTPS record for HTTP/2 at those addresses (RFC 9460, 2.2)."""
    values = {
        _ALPN: b"\2h2",
        _IPV4HINT: b"".join(data for data in addresses if len(data) == 4),
        _IPV6HINT: b"".join(data for data in addresses if len(data) == 16),
    }
    given = (struct.pack("!HH", key, len(data)) + data for key, data in values.items() if data)
    return b"\0\1\0" + b"".join(given)


def decode_reply(message: bytes) -> Answer:
    """Return a reply's addresses. Raises ValueError if it is malformed."""
    try:
        number, flags, questions, answers, _, _ = _HEAD.unpack_from(message)
        at = _HEAD.size
        for _ in range(questions):
            at = _decode_name(message, at)[1] + 4
        found = []
        for _ in range(answers):
            at = _decode_name(message, at)[1]
            kind, _, _, size = _RECORD.unpack_from(message, at)
            at += _RECORD.size
            if kind in (A, AAAA):
                family = socket.AF_INET if kind == A else socket.AF_INET6
                found.append(socket.inet_ntop(family, message[at : at + size]))
            at += size
    except (struct.error, IndexError) as error:
        raise ValueError("the reply is cut short") from error
    rcode = flags & 0x0F
    shown = RCODES[rcode] if rcode < len(RCODES) else f"RCODE{rcode}"
    return Answer(number, shown, tuple(found), bool(flags & 0x0200))


def _encode_name(name: str) -> bytes:
    encoded = b""
    for label in name.rstrip(".").split("."):
        raw = label.encode("idna") if not label.isascii() else label.encode()
        if not 1 <= len(raw) <= 63:
            raise ValueError(f"{name!r} has a label that is empty or over 63 bytes")
        encoded += bytes([len(raw)]) + raw
    return encoded + b"\0"


def _decode_name(message: bytes, at: int) -> tuple[str, int]:
    """Return the name at `at`, in lower case, and the position behind it."""
    labels: list[str] = []
    end = 0
    for _ in range(_POINTERS_MAX + 128):
        size = message[at]
        if size & _POINTER == _POINTER:
            end = end or at + 2
            at = (size & ~_POINTER) << 8 | message[at + 1]
        elif size == 0:
            return ".".join(labels).lower(), end or at + 1
        else:
            labels.append(message[at + 1 : at + 1 + size].decode("ascii", "replace"))
            at += 1 + size
    raise ValueError("the name never ends")
