"""The D-Bus request to systemd for each worker."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from jeepney import (
    DBusAddress,
    Message,
    MessageType,
    Parser,
    new_error,
    new_method_return,
    new_signal,
)
from jeepney.wrappers import DBusErrorResponse

from egressd.netd.engine.scope import call, start_transient_unit

WANTED = start_transient_unit("egressd-worker-1-7.scope", 4711, 1 << 30)


async def asked(folder: Path, *answers: str, is_let_in: bool = True) -> list[Message]:
    """Call a program that gives those answers to the first message: a signal, a return, an
    error.
    """
    heard: list[Message] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert (await reader.readline()).startswith(b"\0AUTH EXTERNAL ")
        writer.write(b"OK 0123\r\n" if is_let_in else b"REJECTED EXTERNAL\r\n")
        if is_let_in:
            assert await reader.readline() == b"BEGIN\r\n"
            parser = Parser()
            while not heard:
                heard.extend(parser.feed(await reader.read(4096)))
            for number, kind in enumerate(answers, start=1):
                writer.write(answer(kind, heard[0]).serialise(serial=number))
        writer.close()

    async with await asyncio.start_unix_server(serve, folder / "private"):
        await call(folder / "private", WANTED)
    return heard


def answer(kind: str, to: Message) -> Message:
    match kind:
        case "signal":
            job = DBusAddress(
                "/org/freedesktop/systemd1", interface="org.freedesktop.systemd1.Manager"
            )
            return new_signal(job, "JobNew", "u", (1,))
        case "return":
            return new_method_return(to, "o", ("/org/freedesktop/systemd1/job/1",))
        case _:
            return new_error(to, "org.freedesktop.systemd1.UnitExists", "s", ("it is there",))


async def test_the_request_for_a_scope_has_process_and_memory_limit(tmp_path: Path) -> None:
    (message,) = await asked(tmp_path, "signal", "return")
    assert message.header.message_type is MessageType.method_call
    name, mode, properties, others = message.body
    assert (name, mode, others) == ("egressd-worker-1-7.scope", "fail", [])
    assert dict(properties) == {
        "Description": ("s", "egressd: an engine worker"),
        "MemoryMax": ("t", 1 << 30),
        "CollectMode": ("s", "inactive-or-failed"),
        "PIDs": ("au", [4711]),
    }


async def test_an_error_reply_is_raised_with_its_text(tmp_path: Path) -> None:
    with pytest.raises(DBusErrorResponse, match="it is there"):
        await asked(tmp_path, "error")


async def test_a_closed_connection_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="it hung up"):
        await asked(tmp_path, "signal")


async def test_a_failed_authentication_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="Authentication failed"):
        await asked(tmp_path, is_let_in=False)
