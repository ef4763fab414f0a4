"""The messages between netd, a gate and its sender."""

from __future__ import annotations

from typing import Final

import msgspec

from egressd.model.wording import NONE, Sentence, decoded, encoded
from egressd.netd.engine.protocol import Way

SEND_S: Final = 30.0
"""Seconds that a message may take, from the start of the gate on."""


class SenderOrder(msgspec.Struct, frozen=True, kw_only=True):
    """A message, and the plugin of Apprise and the URL that it is sent by."""

    plugin: str
    url: str
    title: str
    body: str


class GateOrder(msgspec.Struct, frozen=True, kw_only=True):
    """A message, the ways that its connections may leave by, and the user of both processes.

    A connection takes the first way that leads there.
    """

    message: SenderOrder
    ways: tuple[Way, ...]
    uid: int
    gid: int


class WantedHost(msgspec.Struct, frozen=True, kw_only=True, tag="wanted"):
    """The sender wants connections to a host's port. A listener comes along, as a descriptor."""

    host: str
    port: int


class SendOutcome(msgspec.Struct, frozen=True, kw_only=True, tag="outcome"):
    """The end of a message."""

    is_sent: bool
    reason: Sentence = NONE
    """The reason why it was not sent."""


def pack(value: msgspec.Struct) -> bytes:
    """Return a message between these processes as bytes."""
    return msgspec.json.encode(value, enc_hook=encoded)


def unpack_outcome(content: bytes) -> SendOutcome:
    """Return a gate's answer. Raises ValueError."""
    return msgspec.json.decode(content, type=SendOutcome, dec_hook=decoded)


def unpack_said(content: bytes) -> WantedHost | SendOutcome:
    """Return a message of the sender. Raises ValueError."""
    return msgspec.json.decode(content, type=WantedHost | SendOutcome, dec_hook=decoded)
