"""One call by D-Bus: what is sent, and what is made of the answer."""

from __future__ import annotations

import asyncio
import os
import struct
from pathlib import Path

import pytest

from egressd.netd import dbus
from egressd.netd.dbus import Body, Refused
from egressd.netd.engine.scope import start_transient_unit

MESSAGE = dbus.method_call("/a", "b.C", "D", "e.F", Body())


def answer(kind: int, body: bytes = b"", serial: int = 1) -> bytes:
    """A message with one field, REPLY_SERIAL: kind 2 is a return, 3 an error, 4 a signal."""
    field = struct.pack("<BB2sI", 5, 1, b"u\0", serial)
    head = struct.pack("<cBBBIII", b"l", kind, 0, 1, len(body), 7, len(field))
    return head + field + body


async def call(folder: Path, *answers: bytes, is_let_in: bool = True) -> bytes:
    """Call who listens in the folder; what it was sent."""
    heard = b""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal heard
        heard += await reader.readline()
        writer.write(b"OK 0123\r\n" if is_let_in else b"REJECTED EXTERNAL\r\n")
        if is_let_in:
            heard += await reader.readline()
            heard += await reader.readexactly(len(MESSAGE))
            writer.write(b"".join(answers))
        writer.close()

    async with await asyncio.start_unix_server(serve, folder / "bus"):
        await dbus.call(folder / "bus", MESSAGE)
    return heard


def test_it_says_who_it_is_and_waits_for_the_answer(tmp_path: Path) -> None:
    heard = asyncio.run(call(tmp_path, answer(4), answer(2)))
    user = str(os.geteuid()).encode().hex().encode()
    assert heard == b"\0AUTH EXTERNAL " + user + b"\r\nBEGIN\r\n" + MESSAGE


def test_an_error_is_told_in_its_words(tmp_path: Path) -> None:
    words = b"it is full"
    body = len(words).to_bytes(4, "little") + words + b"\0"
    with pytest.raises(Refused, match="it is full"):
        asyncio.run(call(tmp_path, answer(3, body)))
    with pytest.raises(Refused, match="it hung up"):
        asyncio.run(call(tmp_path))
    with pytest.raises(Refused, match="does not let us in"):
        asyncio.run(call(tmp_path, is_let_in=False))


def test_a_call_has_its_fields_each_at_a_multiple_of_eight() -> None:
    """The specification's "Message Format": code, signature and value of each field."""
    body = Body()
    body.signature = "s"
    body.put("s", "hi")
    message = dbus.method_call("/a", "b.C", "D", "e.F", body)
    order, kind, _, version, size, serial, fields = struct.unpack_from("<cBBBIII", message)
    assert (order, kind, version, size, serial) == (b"l", 1, 1, 7, 1)
    assert message[16:24] == b"\x01\x01o\0\x02\0\0\0"
    assert message[24:27] == b"/a\0"
    assert message[32:40] == b"\x02\x01s\0\x03\0\0\0"
    assert message[16 : 16 + fields].endswith(b"\x08\x01g\0\x01s\0")
    start = 16 + fields + -fields % 8
    assert message[start:] == b"\x02\0\0\0hi\0"


def test_a_scope_is_asked_for_with_its_process_and_memory() -> None:
    body = start_transient_unit("egressd-worker-1-7.scope", 4711, 1 << 30)
    assert body.signature == "ssa(sv)a(sa(sv))"
    data = bytes(body.data)
    assert data.startswith(b"\x18\0\0\0egressd-worker-1-7.scope\0")
    at = data.index(b"PIDs\0")
    # A signature, the array's length in bytes, and the number.
    assert data[at + 5 : at + 9] == b"\x02au\0"
    length, pid = struct.unpack_from("<II", data, (at + 9 + 3) & ~3)
    assert (length, pid) == (4, 4711)
    at = data.index(b"MemoryMax\0") + 10
    assert data[at : at + 3] == b"\x01t\0"
    assert struct.unpack_from("<Q", data, (at + 3 + 7) & ~7) == (1 << 30,)
    assert data.endswith(bytes(4))  # the array of further units is empty
