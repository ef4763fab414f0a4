"""Netlink: the messages, a request socket, and a listener for events.

It serves rtnetlink, nfnetlink and sock_diag alike, which share this framing (see
Documentation/userspace-api/netlink/intro.rst of the kernel). It replaces pyroute2 because that
one's blocking sockets refuse to work inside a running event loop, its asynchronous ones take 0.5 ms
a request where this takes 0.02, and importing it costs 24 MB and a quarter of a second.

Numbers are in host byte order unless a protocol says otherwise (nfnetlink: big endian).
"""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import struct
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple, Self

from egressd.netd.kernel import classic_bpf, uapi

_HEADER = struct.Struct("=IHHII")  # length, type, flags, sequence, port
_ATTRIBUTE = struct.Struct("=HH")  # length, type
NFGENMSG = struct.Struct("=BBH")
"""nfgenmsg, the header of nfnetlink's messages: family, version, resource (big endian)."""
_RECEIVE_BYTES = 1 << 16  # twice what the kernel puts in one datagram of a dump
_DUMP_ATTEMPTS = 8  # a dump that a change interrupted is made again
_HEARD_MAX = 1024  # datagrams that are read before other tasks have their turn


class NetlinkError(OSError):
    """The kernel refused a request. ``strerror`` holds the kernel's own message if it sent one."""


class Message(NamedTuple):
    """A message without its header."""

    kind: int
    flags: int
    sequence: int
    port: int
    """``nlmsg_pid``: the address of the socket that caused it, not a process id."""
    body: bytes


def attribute(kind: int, value: bytes) -> bytes:
    """Return an attribute (type, length, value), padded to 4 bytes."""
    return _ATTRIBUTE.pack(4 + len(value), kind) + value + b"\0" * (-len(value) % 4)


def nest(kind: int, *inner: bytes) -> bytes:
    """Return an attribute made of attributes."""
    return attribute(kind | uapi.NLA_F_NESTED, b"".join(inner))


def encode(values: Iterable[tuple[int, bytes]]) -> bytes:
    """Return attributes one after another."""
    return b"".join(attribute(kind, value) for kind, value in values)


def attributes(data: bytes, start: int = 0) -> dict[int, bytes]:
    """Return the attributes in `data` from offset `start` on, by type."""
    found: dict[int, bytes] = {}
    end = len(data)
    unpack = _ATTRIBUTE.unpack_from
    while start + 4 <= end:
        length, kind = unpack(data, start)
        if length < 4:
            break
        found[kind & uapi.NLA_TYPE_MASK] = data[start + 4 : start + length]
        start += (length + 3) & ~3
    return found


def items(data: bytes, start: int = 0) -> Iterator[tuple[int, bytes]]:
    """Yield the attributes one by one: in a list several have the same type."""
    while start + 4 <= len(data):
        length, kind = _ATTRIBUTE.unpack_from(data, start)
        if length < 4:
            return
        yield kind & uapi.NLA_TYPE_MASK, data[start + 4 : start + length]
        start += (length + 3) & ~3


def text(value: bytes) -> str:
    """Return a NUL-terminated string attribute as text."""
    return value.split(b"\0", 1)[0].decode(errors="replace")


def u32(value: int) -> bytes:
    """Return a 32-bit number in host byte order."""
    return value.to_bytes(4, sys.byteorder)


def number(value: bytes | None) -> int:
    """Return a number attribute in host byte order; 0 if it is missing."""
    return 0 if value is None else int.from_bytes(value, sys.byteorder)


class NetlinkSocket:
    """Sends requests to the kernel of the network namespace it was made in, and waits for answers.

    The kernel works on a request while it is being sent, so nothing here waits for longer than the
    work takes. Not to be shared between threads. A context manager.
    """

    def __init__(self, protocol: int) -> None:
        self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, protocol)
        for option in (uapi.NETLINK_CAP_ACK, uapi.NETLINK_EXT_ACK, uapi.NETLINK_GET_STRICT_CHK):
            self._socket.setsockopt(uapi.SOL_NETLINK, option, 1)
        self._sequence = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the socket. May be called again."""
        self._socket.close()

    @property
    def port(self) -> int:
        """The socket's address, which events that it causes bear. 0 before its first request."""
        port: int = self._socket.getsockname()[0]
        return port

    def request(self, kind: int, body: bytes, flags: int = 0) -> list[bytes]:
        """Send a request; return the bodies of the kernel's answers, if there are any.

        Raises NetlinkError if the kernel refuses.
        """
        self._send(kind, uapi.NLM_F_REQUEST | uapi.NLM_F_ACK | flags, body)
        return [message.body for message in self._answers()]

    def dump(self, kind: int, body: bytes) -> list[bytes]:
        """Return the bodies of everything the kernel lists, as of one moment.

        Repeats the request if the list changed meanwhile. Raises NetlinkError.
        """
        for _ in range(_DUMP_ATTEMPTS - 1):
            try:
                return list(self.stream(kind, body))
            except InterruptedError:
                continue
        return list(self.stream(kind, body))

    def stream(self, kind: int, body: bytes) -> Iterator[bytes]:
        """Yield the items of `dump` one by one. Raises InterruptedError if the list changed
        meanwhile.

        The caller must read to the end: the socket is busy until then.
        """
        self._send(kind, uapi.NLM_F_REQUEST | uapi.NLM_F_DUMP, body)
        interrupted = False
        for message in self._answers():
            interrupted |= bool(message.flags & uapi.NLM_F_DUMP_INTR)
            yield message.body
        if interrupted:
            raise InterruptedError(errno.EINTR, "the list changed while it was read")

    def transact(self, subsystem: int, requests: Iterable[tuple[int, int, bytes]]) -> None:
        """Send requests (kind, flags, body) to a subsystem of nfnetlink as one batch: the kernel
        carries out all of them, or none.

        The kernel answers every request that it refuses, and the last one; an error of the batch as
        a whole bears the number of the beginning (nfnetlink_rcv_batch in
        net/netfilter/nfnetlink.c). Raises NetlinkError, the first one.
        """
        edge = NFGENMSG.pack(0, 0, socket.htons(subsystem))
        *others, (kind, flags, body) = requests
        batch = (
            self._framed(uapi.NFNL_MSG_BATCH_BEGIN, uapi.NLM_F_REQUEST, edge),
            *(self._framed(kind, uapi.NLM_F_REQUEST | flags, body) for kind, flags, body in others),
            self._framed(kind, uapi.NLM_F_REQUEST | uapi.NLM_F_ACK | flags, body),
            self._framed(uapi.NFNL_MSG_BATCH_END, uapi.NLM_F_REQUEST, edge),
        )
        self._socket.send(b"".join(batch))
        last = self._sequence - 1
        begin = self._sequence + 1 - len(batch)
        failure: NetlinkError | None = None
        while True:
            for message in _split(self._socket.recv(_RECEIVE_BYTES)):
                if message.kind != uapi.NLMSG_ERROR or not begin <= message.sequence <= last:
                    continue
                try:
                    _raise_for(message.flags, message.body)
                except NetlinkError as error:
                    failure = failure or error
                if message.sequence not in (begin, last):
                    continue
                if failure is not None:
                    raise failure
                return

    def _send(self, kind: int, flags: int, body: bytes) -> None:
        self._socket.send(self._framed(kind, flags, body))

    def _framed(self, kind: int, flags: int, body: bytes) -> bytes:
        self._sequence += 1
        return _HEADER.pack(_HEADER.size + len(body), kind, flags, self._sequence, 0) + body

    def _answers(self) -> Iterator[Message]:
        """Yield the messages that answer the last request, up to its end."""
        while True:
            for message in _split(self._socket.recv(_RECEIVE_BYTES)):
                if message.sequence != self._sequence:
                    continue
                if message.kind in (uapi.NLMSG_ERROR, uapi.NLMSG_DONE):
                    _raise_for(message.flags, message.body)
                    return
                yield message


def _split(data: bytes) -> Iterator[Message]:
    """Yield the messages in a datagram."""
    at, end = 0, len(data)
    unpack, size = _HEADER.unpack_from, _HEADER.size
    while at + size <= end:
        length, kind, flags, sequence, port = unpack(data, at)
        if length < size:
            return
        yield Message(kind, flags, sequence, port, data[at + size : at + length])
        at += (length + 3) & ~3


def _raise_for(flags: int, body: bytes) -> None:
    """Raise the error in an error or end-of-dump message, if there is one.

    Layout: the negative errno; in error messages the header of the request (all of it unless
    capped); then attributes.
    """
    number = -struct.unpack_from("=i", body)[0] if len(body) >= 4 else 0
    if not number:
        return
    reason = os.strerror(number)
    if flags & uapi.NLM_F_ACK_TLVS:
        start = 4 + _HEADER.size
        if not flags & uapi.NLM_F_CAPPED:
            start = 4 + _HEADER.unpack_from(body, 4)[0]
        reason = text(attributes(body, start).get(uapi.NLMSGERR_ATTR_MSG, reason.encode()))
    raise NetlinkError(number, reason)


class KeptSocket:
    """Lends a `NetlinkSocket` that stays open, for a task that reads something regularly.

    To close a socket of NETLINK_NETFILTER takes some 5 ms after a transaction of nf_tables: the
    kernel first waits until what the transaction removed is destroyed (nft_rcv_nl_event in
    net/netfilter/nf_tables_api.c). Not to be shared between threads. A context manager.
    """

    def __init__(self, protocol: int) -> None:
        self._protocol = protocol
        self._socket: NetlinkSocket | None = None

    def __enter__(self) -> NetlinkSocket:
        if self._socket is None:
            self._socket = NetlinkSocket(self._protocol)
        return self._socket

    def __exit__(self, _kind: object, error: BaseException | None, _traceback: object) -> None:
        if error is not None:
            self.close()  # answers may be left in it

    def close(self) -> None:
        """Close the socket. May be called again."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None


class NetlinkListener:
    """Receives multicast messages in the running event loop.

    Calls ``heard(messages, lost)``; ``lost`` is true if the kernel had to drop some (ENOBUFS), so
    that the known state must be read anew. `program` is a classic BPF program (an array of ``struct
    sock_filter``) that sees each datagram first: a return value of 0 drops it.
    """

    def __init__(
        self,
        protocol: int,
        groups: Iterable[int],
        heard: Callable[[list[Message], bool], None],
        program: bytes = b"",
    ) -> None:
        self._heard = heard
        self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, protocol)
        self._socket.setblocking(False)
        self._socket.bind((0, 0))  # an unbound socket would receive nothing
        if program:
            self.attach(program)
        for group in groups:
            self._socket.setsockopt(uapi.SOL_NETLINK, uapi.NETLINK_ADD_MEMBERSHIP, group)
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._socket, self._read)

    def attach(self, program: bytes) -> None:
        """Replace the present BPF program, if any."""
        classic_bpf.attach(self._socket, program)

    def close(self) -> None:
        """Stop listening. May be called again."""
        if self._socket.fileno() >= 0:
            self._loop.remove_reader(self._socket)
            self._socket.close()

    def _read(self) -> None:
        found: list[Message] = []
        lost = False
        for _ in range(_HEARD_MAX):
            try:
                data = self._socket.recv(_RECEIVE_BYTES)
            except BlockingIOError:
                break
            except OSError as error:
                if error.errno != errno.ENOBUFS:
                    raise
                lost = True
                continue
            found += _split(data)
        if found or lost:
            self._heard(found, lost)
