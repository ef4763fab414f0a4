"""Frames on netd's socket: a 4-byte big-endian length and a msgpack document."""

from __future__ import annotations

import asyncio
import struct
from typing import TypeVar

import msgspec

from egressd.model.messages import FRAME_MAX

T = TypeVar("T")

_HEADER = struct.Struct(">I")


def pack(message: msgspec.Struct, most: int = FRAME_MAX) -> bytes:
    """Return the frame that carries `message`. Raises ValueError if the encoded message is longer
    than `most` bytes.
    """
    body = msgspec.msgpack.encode(message)
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
