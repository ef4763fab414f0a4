"""The api's end of the socket to netd."""

from __future__ import annotations

import asyncio
import os
import shutil
from contextlib import closing
from pathlib import Path

import msgspec
import pytest

from egressd.model.errors import Failed, Invalid
from egressd.model.messages import (
    DeviceNews,
    DhcpFrame,
    Event,
    Request,
    RuleCount,
    SeenNeighbour,
    Status,
    Watch,
)
from egressd.model.plan import Change, Plan
from egressd.netd.ipc.client import NetdClient
from egressd.netd.ipc.server import Server
from egressd.netd.system import framing
from tests.support.netns import eventually
from tests.support.stand_ins import UnexpectedReconciler

STATUS = Status(state="running", revision=7)


class _Busy(UnexpectedReconciler):
    """A netd that carries out requests, but too late."""

    def __init__(self) -> None:
        self.free = asyncio.Event()

    async def counters(self) -> dict[int, RuleCount]:
        await self.free.wait()
        return {}

    async def apply(self, change: Change, *, is_strict: bool = True) -> None:
        await self.free.wait()


async def test_a_client_reconnects_after_a_timeout_and_sends_its_plan_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    netd = _Busy()
    server = Server(tmp_path / "netd.sock", os.getuid(), netd)
    await server.open()
    connected: list[bool] = []

    async def on_connect() -> None:
        connected.append(True)

    client = NetdClient(tmp_path / "netd.sock", on_connect=on_connect, on_event=lambda _: None)
    running = asyncio.create_task(client.run())
    await eventually(lambda: len(connected) == 1)
    monkeypatch.setattr("egressd.netd.ipc.client._ANSWER_S", 0.05)
    with pytest.raises(Failed, match=r"no answer within 0\.05 seconds"):
        await client.counters()
    assert len(connected) == 1, "a question that is not answered is nobody else's matter"
    monkeypatch.setattr("egressd.netd.ipc.client._ANSWER_S", 5.0)
    asked = asyncio.create_task(client.counters())
    await asyncio.sleep(0)
    monkeypatch.setattr("egressd.netd.ipc.client._ANSWER_S", 0.05)
    with pytest.raises(Failed, match=r"no answer within 0\.05 seconds"):
        await client.apply(Change(base=1, revision=2))
    monkeypatch.setattr("egressd.netd.ipc.client._ANSWER_S", 5.0)
    with pytest.raises(Failed, match="went away"):
        await asked
    await eventually(lambda: len(connected) == 2)
    netd.free.set()
    assert await client.counters() == {}
    running.cancel()
    await asyncio.wait({running})
    await server.close()


class _Leased(_Busy):
    """A netd that keeps the ends of leases that it is given."""

    def __init__(self) -> None:
        super().__init__()
        self.given: list[int] = []

    async def renew_lease(self, until_ms: int) -> None:
        if until_ms < 1000:
            raise Invalid("until_ms must be a moment to come")
        self.given.append(until_ms)


async def test_a_renewal_waits_for_no_change_and_comes_from_the_plans_sender(
    tmp_path: Path,
) -> None:
    netd = _Leased()
    server = Server(tmp_path / "netd.sock", os.getuid(), netd)
    await server.open()
    connected: list[bool] = []

    async def on_connect() -> None:
        connected.append(True)

    client, other = (
        NetdClient(tmp_path / "netd.sock", on_connect=on_connect, on_event=lambda _: None)
        for _ in range(2)
    )
    running = [asyncio.create_task(each.run()) for each in (client, other)]
    await eventually(lambda: len(connected) == 2)
    change = asyncio.create_task(client.apply(Change(base=1, revision=2)))
    await asyncio.sleep(0)
    await client.renew_lease(5000)
    assert not change.done()
    with pytest.raises(Failed, match="another api"):
        await other.renew_lease(6000)
    with pytest.raises(Failed, match="until_ms must be a moment to come"):
        await client.renew_lease(999)
    assert netd.given == [5000]
    netd.free.set()
    await change
    for each in running:
        each.cancel()
    await asyncio.wait(running)
    await server.close()


class _Refusing(_Busy):
    """A netd that refuses some plans, and reports its status all the time."""

    def __init__(self, refusals: int) -> None:
        super().__init__()
        self.refusals = refusals
        self.plans = 0

    async def set_plan(self, plan: Plan) -> int:
        self.plans += 1
        if self.plans <= self.refusals:
            raise Failed("load the table", "the kernel would not")
        return plan.whitelist.epoch

    async def status(self) -> Status:
        return STATUS


@pytest.mark.slow
async def test_a_refused_plan_is_sent_again_on_the_same_connection(tmp_path: Path) -> None:
    netd = _Refusing(2)
    server = Server(tmp_path / "netd.sock", os.getuid(), netd)
    await server.open()
    statuses: list[Status] = []

    async def on_connect() -> None:
        statuses.append(await client.status())
        await client.set_plan(Plan())

    client = NetdClient(tmp_path / "netd.sock", on_connect=on_connect, on_event=lambda _: None)
    running = asyncio.create_task(client.run())
    begun = asyncio.get_running_loop().time()
    await eventually(lambda: netd.plans == 3)
    assert asyncio.get_running_loop().time() - begun > 0.25, "each wait is longer"
    await asyncio.sleep(0.5)
    assert (netd.plans, statuses) == (3, [STATUS] * 3)
    running.cancel()
    await asyncio.wait({running})
    await server.close()


@pytest.mark.parametrize("nonsense", [b"\xff\xff\xff\xff", b"\0\0\0\1\xc1"], ids=["long", "odd"])
async def test_an_invalid_answer_makes_the_client_reconnect(
    tmp_path: Path, nonsense: bytes
) -> None:
    connections = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        with closing(writer):
            writer.write(nonsense)
            await reader.read()

    server = await asyncio.start_unix_server(serve, tmp_path / "netd.sock")
    client = NetdClient(tmp_path / "netd.sock", on_connect=_nothing, on_event=lambda _: None)
    running = asyncio.create_task(client.run())
    await eventually(lambda: connections > 2)
    assert not running.done()
    running.cancel()
    await asyncio.wait({running})
    server.close()


async def test_a_cancelled_request_stays_cancelled_while_netd_goes_away(tmp_path: Path) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with closing(writer):
            await reader.read()

    server = await asyncio.start_unix_server(serve, tmp_path / "netd.sock")
    client = NetdClient(tmp_path / "netd.sock", on_connect=_nothing, on_event=lambda _: None)
    running = asyncio.create_task(client.run())
    await eventually(lambda: client._writer is not None)
    asking = asyncio.create_task(client.status())
    await eventually(lambda: len(client._waiting) == 2)
    client._hang_up()
    asking.cancel()
    running.cancel()
    await asyncio.wait({asking, running}, timeout=5)
    assert asking.cancelled()
    assert running.cancelled()
    server.close()


async def test_a_too_large_request_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("egressd.netd.ipc.client.REQUEST_MAX", 100)

    server = Server(tmp_path / "netd.sock", os.getuid(), _Refusing(0))
    await server.open()
    client = NetdClient(tmp_path / "netd.sock", on_connect=_nothing, on_event=lambda _: None)
    running = asyncio.create_task(client.run())
    await eventually(lambda: client._writer is not None)
    with pytest.raises(Failed, match="over the limit of 100"):
        await client.halt("x" * 100)
    running.cancel()
    await asyncio.wait({running})
    await server.close()


async def test_netd_recreates_its_socket_when_its_run_directory_was_cleared(tmp_path: Path) -> None:
    # An api that is started later could otherwise not reach netd until netd is restarted.
    path = tmp_path / "run" / "netd.sock"
    server = Server(path, os.getuid(), _Refusing(0))
    await server.open()

    before, first = await connect(path)
    shutil.rmtree(path.parent)
    await server.verify()
    after, second = await connect(path)
    inode = path.stat().st_ino
    await server.verify()
    assert path.stat().st_ino == inode, "it is left alone while it is there"
    assert await before.status() == await after.status() == STATUS
    for running in (first, second):
        running.cancel()
    await asyncio.wait({first, second})
    await server.close()
    assert not path.exists()


async def test_plans_are_taken_from_one_connection_at_a_time(tmp_path: Path) -> None:
    netd = _Refusing(0)
    server = Server(tmp_path / "netd.sock", os.getuid(), netd)
    await server.open()

    path = tmp_path / "netd.sock"
    (first, one), (second, other) = await connect(path), await connect(path)
    await first.set_plan(Plan())
    with pytest.raises(Failed, match="another api says what is wanted"):
        await second.set_plan(Plan())
    assert await second.status() == STATUS
    await first.set_plan(Plan())
    one.cancel()
    await asyncio.wait({one})
    await eventually(lambda: server._planner is None)
    await second.set_plan(Plan())
    assert netd.plans == 3
    other.cancel()
    await asyncio.wait({other})
    await server.close()


async def connect(path: Path) -> tuple[NetdClient, asyncio.Task[None]]:
    client = NetdClient(path, on_connect=_nothing, on_event=lambda _: None)
    running = asyncio.create_task(client.run())
    await eventually(lambda: client._writer is not None)
    return client, running


async def _nothing() -> None:
    pass


async def test_a_watcher_that_does_not_read_is_disconnected(tmp_path: Path) -> None:
    server = Server(tmp_path / "netd.sock", os.getuid(), _Busy())
    await server.open()
    reader, writer = await asyncio.open_unix_connection(str(tmp_path / "netd.sock"))
    writer.write(framing.pack(Request(number=1, body=Watch())))
    await framing.read(reader, msgspec.msgpack.Decoder())
    for _ in range(200):
        server.publish(Event(topic="line", text="x" * 100_000))

    async def read_on() -> None:
        while True:
            await framing.read(reader, msgspec.msgpack.Decoder())

    with pytest.raises((OSError, EOFError)):
        await read_on()
    writer.close()
    await server.close()


async def test_devices_are_reported_to_those_that_ask_and_from_the_beginning(
    tmp_path: Path,
) -> None:
    began: list[bool] = []
    server = Server(
        tmp_path / "netd.sock",
        os.getuid(),
        UnexpectedReconciler(),
        devices_watched=lambda: began.append(True),
    )
    await server.open()
    seen: list[DeviceNews] = []
    events: list[Event] = []

    async def on_connect() -> None: ...

    asking = NetdClient(
        tmp_path / "netd.sock",
        on_connect=on_connect,
        on_event=lambda _: None,
        on_devices=seen.append,
    )
    other = NetdClient(tmp_path / "netd.sock", on_connect=on_connect, on_event=events.append)
    running = [asyncio.create_task(each.run()) for each in (asking, other)]
    await eventually(lambda: began == [True])
    news = DeviceNews(
        (SeenNeighbour("lan0", "10.0.0.5", "02:00:5e:00:53:01", 7),),
        (DhcpFrame("lan0", "02:00:5e:00:53:01", b"\x45\0\xff"),),
    )
    server.publish(news)
    await eventually(lambda: seen == [news])
    told = Event(topic="line", text="it is online")
    while told not in events:  # it asks after the other one
        server.publish(told)
        await asyncio.sleep(0.01)
    for each in running:
        each.cancel()
    await asyncio.wait(running)
    await server.close()
