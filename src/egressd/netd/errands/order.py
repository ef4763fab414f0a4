"""The messages between netd, a gate and its runner."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

import msgspec

from egressd.model.wording import NONE, Sentence, decoded, encoded
from egressd.netd.engine.protocol import Way

ERRAND_S: Final = 30.0
"""Seconds that an errand may take, from the start of the gate on."""


class MessageErrand(msgspec.Struct, frozen=True, kw_only=True, tag="message"):
    """A message, and the plugin of Apprise and the URL that it is sent by."""

    plugin: str
    url: str
    title: str
    body: str


class PageErrand(msgspec.Struct, frozen=True, kw_only=True, tag="page"):
    """A page to fetch. `headers` go to the host of `url` alone, not to one that it redirects to."""

    url: str
    headers: dict[str, str]
    fields: tuple[str, ...]
    """Names of the fields of the response's head to return, in lower case."""
    read_max: int
    """Bytes of the page, decompressed."""


Errand: TypeAlias = MessageErrand | PageErrand


class GateOrder(msgspec.Struct, frozen=True, kw_only=True):
    """An errand, the ways that its connections may leave by, and the user of both processes.

    A connection takes the first way that leads there.
    """

    errand: Errand
    ways: tuple[Way, ...]
    uid: int
    gid: int


class WantedHost(msgspec.Struct, frozen=True, kw_only=True, tag="wanted"):
    """The runner wants connections to a host's port. A listener comes along, as a descriptor."""

    host: str
    port: int


class PageChunk(msgspec.Struct, frozen=True, kw_only=True, tag="chunk"):
    """The next bytes of a page."""

    content: bytes


class ErrandOutcome(msgspec.Struct, frozen=True, kw_only=True, tag="outcome"):
    """The end of an errand; of a page with its status, its fields and its content."""

    is_done: bool
    reason: Sentence = NONE
    """The reason why it was not done."""
    status: int = 0
    """The last response's status; 0 without one."""
    fields: dict[str, str] = {}
    content: bytes = b""


Work: TypeAlias = Callable[[], ErrandOutcome]
"""A function that does an errand, for which everything is loaded that it needs of the disk."""

Said: TypeAlias = WantedHost | PageChunk | ErrandOutcome


def pack(value: msgspec.Struct) -> bytes:
    """Return a message between these processes as bytes."""
    return msgspec.msgpack.encode(value, enc_hook=encoded)


def unpack_order(content: bytes) -> GateOrder:
    """Return netd's order. Raises ValueError."""
    return msgspec.msgpack.decode(content, type=GateOrder)


def unpack_errand(content: bytes) -> Errand:
    """Return a gate's errand. Raises ValueError."""
    errand: Errand = msgspec.msgpack.decode(content, type=Errand)
    return errand


def unpack_outcome(content: bytes) -> ErrandOutcome:
    """Return a gate's answer. Raises ValueError."""
    return msgspec.msgpack.decode(content, type=ErrandOutcome, dec_hook=decoded)


def unpack_said(content: bytes) -> Said:
    """Return a message of the runner. Raises ValueError."""
    said: Said = msgspec.msgpack.decode(content, type=Said, dec_hook=decoded)
    return said
