"""The conversation with charon, with a stand-in that speaks its protocol."""

from __future__ import annotations

import asyncio
import struct
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from vici.protocol import Message, Packet  # type: ignore[import-untyped]

from egressd.netd.lines.vici import CharonRefusal, Connection


class StandIn:
    """Lists the items of the given name, in two events a request, and refuses ``terminate``."""

    def __init__(self, delay_s: float = 0.01) -> None:
        self.stays_silent = False
        self._delay_s = delay_s

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await self._converse(reader, writer)
        except asyncio.IncompleteReadError:
            pass
        finally:
            writer.close()

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        def send(kind: int, body: bytes) -> None:
            writer.write(struct.pack("!IB", 1 + len(body), kind) + body)

        while True:
            length = struct.unpack("!I", await reader.readexactly(4))[0]
            data = await reader.readexactly(length)
            name = data[2 : 2 + data[1]].decode()
            values = Message.deserialize(Packet.parse(data).payload) if data[0] == 0 else {}
            if self.stays_silent:
                continue
            if data[0] != Packet.CMD_REQUEST:
                send(Packet.EVENT_CONFIRM, b"")
            elif name == "list-sas":
                for number in (1, 2):
                    event = {"of": values["of"], "number": str(number)}
                    send(Packet.EVENT, bytes([7]) + b"list-sa" + Message.serialize(event))
                    await asyncio.sleep(self._delay_s)
                send(Packet.CMD_RESPONSE, b"")
            elif name == "terminate":
                refusal = {"success": "no", "errmsg": "no such thing"}
                send(Packet.CMD_RESPONSE, Message.serialize(refusal))
            else:
                send(Packet.CMD_UNKNOWN, b"")


@asynccontextmanager
async def conversing(
    tmp_path: Path, charon: StandIn
) -> AsyncIterator[tuple[Connection, list[str]]]:
    """Yield a connection and the reported events, with its end after the block."""
    told: list[str] = []
    path = tmp_path / "vici"
    server = await asyncio.start_unix_server(charon.serve, path)
    connection = await Connection.open(
        path, lambda event, _: told.append(event), lambda: told.append("closed"), ()
    )
    yield connection, told
    connection.close()
    server.close()
    await asyncio.sleep(0.05)  # until both ends have hung up


async def test_concurrent_lists_each_get_their_own_events(tmp_path: Path) -> None:
    async with conversing(tmp_path, StandIn()) as (connection, told):

        async def listed(of: str) -> list[Any]:
            found = await connection.collect("list-sas", "list-sa", {"of": of})
            return [(event["of"], event["number"]) for event in found]

        a, b = await asyncio.gather(listed("a"), listed("b"))
        assert a == [(b"a", b"1"), (b"a", b"2")]
        assert b == [(b"b", b"1"), (b"b", b"2")]

    assert told == []


async def test_a_refusal_is_raised_with_charons_words(tmp_path: Path) -> None:
    async with conversing(tmp_path, StandIn()) as (connection, _):
        with pytest.raises(CharonRefusal, match="no such thing"):
            await connection.ask("terminate", {"ike": "x"})
        with pytest.raises(CharonRefusal, match="knows no dance"):
            await connection.ask("dance")


async def test_a_failed_registration_closes_the_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("egressd.netd.lines.vici._ANSWER_S", 0.1)
    told: list[str] = []

    charon = StandIn()
    charon.stays_silent = True
    hung_up = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await charon.serve(reader, writer)
        hung_up.set()

    server = await asyncio.start_unix_server(serve, tmp_path / "vici")
    with pytest.raises(OSError, match="does not answer"):
        await Connection.open(
            tmp_path / "vici", lambda *_: None, lambda: told.append("closed"), ["log"]
        )
    async with asyncio.timeout(5):
        await hung_up.wait()
    server.close()
    assert told == [], "a connection that never was cannot be lost"


async def test_a_missing_answer_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All callers get their answer within the time-out of the first request."""
    monkeypatch.setattr("egressd.netd.lines.vici._ANSWER_S", 0.4)
    charon = StandIn()

    async with conversing(tmp_path, charon) as (connection, told):
        charon.stays_silent = True
        began = asyncio.get_running_loop().time()
        asked = (connection.ask("terminate", {"ike": "x"}) for _ in range(20))
        answers = await asyncio.gather(*asked, return_exceptions=True)
        assert asyncio.get_running_loop().time() - began < 2
        assert str(answers[0]) == "charon does not answer"
        assert all(isinstance(answer, OSError) for answer in answers)

    assert told == ["closed"]


@pytest.mark.slow
async def test_an_answer_is_received_after_a_pause_of_this_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("egressd.netd.lines.vici._ANSWER_S", 1.0)

    async with conversing(tmp_path, StandIn(delay_s=0.2)) as (connection, told):
        loop = asyncio.get_running_loop()
        # The answer is on its way when this process stands still for longer than it may take.
        loop.call_later(0.1, time.sleep, 1.5)
        found = await connection.collect("list-sas", "list-sa", {"of": "a"})
        assert len(found) == 2

    assert told == []
