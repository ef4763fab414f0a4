"""Frames on netd's socket: a 4-byte big-endian length and a msgpack document."""

from __future__ import annotations

import asyncio
import struct
from typing import Final, TypeVar

import msgspec

from egressd.model.wording import decoded, encoded

T = TypeVar("T")

FRAME_MAX: Final = 64 * 1024 * 1024
"""Bytes in a frame that netd or a worker sends."""

_HEADER = struct.Struct(">I")
_encode = msgspec.msgpack.Encoder(enc_hook=encoded).encode


def decoder_of(kind: type[T]) -> msgspec.msgpack.Decoder[T]:
    """Return a decoder of messages of a type."""
    return msgspec.msgpack.Decoder(kind, dec_hook=decoded)


def pack(message: msgspec.Struct, most: int = FRAME_MAX) -> bytes:
    """Return the frame that carries `message`. Raises ValueError if the encoded message is longer
    than `most` bytes.
    """
    body = _encode(message)
    if len(body) > most:
        raise ValueError(f"a message of {len(body)} bytes is over the limit of {most}")
    return _HEADER.pack(len(body)) + body


async def read(reader: asyncio.StreamReader, decoder: msgspec.msgpack.Decoder[T]) -> T:
    """Return the next message.

    Raises asyncio.IncompleteReadError when the peer is gone, ValueError when the frame is too
    long, msgspec.DecodeError when the message is not of the decoder's type.
    """
    return decoder.decode(await reader.readexactly(await read_length(reader)))


async def read_length(reader: asyncio.StreamReader, most: int = FRAME_MAX) -> int:
    """Read a frame's header and return the length in bytes of the message that follows.

    Raises asyncio.IncompleteReadError when the peer is gone, ValueError when the length is over
    `most`.
    """
    (length,) = _HEADER.unpack(await reader.readexactly(_HEADER.size))
    if length > most:
        raise ValueError(f"a frame of {length} bytes is over the limit of {most}")
    return int(length)
