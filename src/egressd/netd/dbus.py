"""One call to a program that speaks D-Bus on a socket of its own: as much of it as that takes.

Framing and types are those of the D-Bus specification, "Message Protocol" and "Type System".
"""

from __future__ import annotations

import asyncio
import os
import struct
from pathlib import Path
from typing import Final

_METHOD_CALL, _METHOD_RETURN, _ERROR = 1, 2, 3
_PATH, _INTERFACE, _MEMBER, _REPLY_SERIAL, _DESTINATION, _SIGNATURE = 1, 2, 3, 5, 6, 8
_FIXED = struct.Struct("<cBBBIII")
"""Byte order, type, flags, version, length of the body, serial, length of the fields."""
_SERIAL: Final = 1
_ALIGNMENT: Final = {"y": 1, "g": 1, "v": 1, "u": 4, "s": 4, "o": 4, "a": 4, "t": 8, "(": 8}


class Refused(Exception):
    """The other side would not, or said what is no D-Bus."""


class Body:
    """Values one after another, each aligned as its type is."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.signature = ""

    def align(self, kind: str) -> None:
        """Fill up to where a value of that type may begin."""
        self.data += bytes(-len(self.data) % _ALIGNMENT[kind])

    def put(self, kind: str, value: int | str) -> None:
        """Add a number (``u``, ``t``), a text (``s``, ``o``) or a signature (``g``)."""
        self.align(kind)
        if isinstance(value, int):
            self.data += value.to_bytes(_ALIGNMENT[kind], "little")
            return
        text = value.encode()
        self.data += len(text).to_bytes(1 if kind == "g" else 4, "little") + text + b"\0"

    def put_variant(self, kind: str, value: int | str) -> None:
        """Add a value with its type (``v``)."""
        self.put("g", kind)
        self.put(kind, value)

    def put_array(self, element: str, items: Body) -> None:
        """Add an array of what is in `items`, which begins at a multiple of eight bytes."""
        self.align("a")
        self.data += len(items.data).to_bytes(4, "little")
        self.align(element)
        self.data += items.data


def method_call(path: str, interface: str, member: str, destination: str, body: Body) -> bytes:
    """A message that calls a method."""
    fields = Body()
    for code, kind, value in (
        (_PATH, "o", path),
        (_INTERFACE, "s", interface),
        (_MEMBER, "s", member),
        (_DESTINATION, "s", destination),
        (_SIGNATURE, "g", body.signature),
    ):
        fields.align("(")
        fields.data.append(code)
        fields.put_variant(kind, value)
    size = len(fields.data)
    fields.align("(")
    fixed = _FIXED.pack(b"l", _METHOD_CALL, 0, 1, len(body.data), _SERIAL, size)
    return fixed + bytes(fields.data) + bytes(body.data)


async def call(socket: Path, message: bytes) -> None:
    """Send a message of `method_call` to who listens there, as this process's user, and wait for
    the answer. Raises OSError, and Refused with its name and words where that is an error.
    """
    reader, writer = await asyncio.open_unix_connection(socket)
    try:
        # "Authentication Protocol": the other side knows by the socket who this is.
        user = str(os.geteuid()).encode().hex()
        writer.write(f"\0AUTH EXTERNAL {user}\r\n".encode())
        if not (await reader.readline()).startswith(b"OK "):
            raise Refused("it does not let us in")
        writer.write(b"BEGIN\r\n" + message)
        while True:
            if (answer := await _read(reader)) is not None:
                if answer:
                    raise Refused(answer)
                return
    except asyncio.IncompleteReadError:
        raise Refused("it hung up") from None
    finally:
        writer.close()


async def _read(reader: asyncio.StreamReader) -> str | None:
    """The next message: None unless it answers ours, else the error that it is, or nothing."""
    order, kind, _, _, body_size, _, fields_size = _FIXED.unpack(
        await reader.readexactly(_FIXED.size)
    )
    if order != b"l":
        raise Refused("it speaks in the other byte order")
    fields = await reader.readexactly(fields_size + -fields_size % 8)
    body = await reader.readexactly(body_size)
    if kind not in (_METHOD_RETURN, _ERROR):
        return None
    return "" if kind == _METHOD_RETURN else _words(body) or fields.decode(errors="replace")


def _words(body: bytes) -> str:
    """The text that an error begins with."""
    size = int.from_bytes(body[:4], "little")
    return body[4 : 4 + size].decode(errors="replace")
