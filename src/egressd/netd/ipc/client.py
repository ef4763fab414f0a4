"""The api's end of netd's socket."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import TypeVar

import msgspec
import structlog

from egressd.model.bounds import TEXT_MAX
from egressd.model.delays import Delay
from egressd.model.errors import EgressdError, Failed
from egressd.model.findings import MachineFinding
from egressd.model.instances import KernelPath, NodePath
from egressd.model.messages import (
    MEASURED_EACH_S,
    REQUEST_MAX,
    AlertEnded,
    ApplyChange,
    CheckSystem,
    CloseConnections,
    ConnectionsClosed,
    ConnectionsListed,
    Counters,
    Delays,
    DeviceNews,
    Done,
    Event,
    FetchPage,
    GetCounters,
    GetStatus,
    Halt,
    LineNews,
    LineStatus,
    ListConnections,
    Locate,
    Located,
    MeasureDelay,
    News,
    PageFetched,
    Probe,
    Refused,
    RenewLease,
    Reply,
    Request,
    RequestBody,
    Rotate,
    Rotated,
    RuleCount,
    SendAlert,
    SetPlan,
    Status,
    StatusNews,
    SystemChecked,
    Trial,
    Try,
    Watch,
    WatchDevices,
    without_netd,
)
from egressd.model.names import one_line
from egressd.model.plan import Change, Plan
from egressd.model.wording import Sentence, as_sentence, decoded
from egressd.netd.system import framing

log = structlog.get_logger()

T = TypeVar("T")

_ANSWER_S = 60.0
"""Seconds that netd may take for one answer: a cold start of 1,000 targets takes far less."""
_ERRAND_S = 60.0
"""Seconds that an errand may wait for others."""
_RECONNECT_S = 0.1
_ASK_AGAIN_MAX_S = 10.0


class NetdClient:
    """A connection to netd that reconnects by itself whenever it breaks.

    `on_connect` runs after each connection, before other callers send anything on it: it is the
    place to send the whole plan. It is called again, with increasing delays, while netd refuses
    the plan or it raises another EgressdError. `on_event` gets netd's events. `on_status` gets
    netd's status of the device whenever that changes, and the status without netd once the
    connection is lost; `why_away` gives the reason why netd is away, if it is known. `on_devices`
    gets what netd sees in LANs.
    """

    def __init__(
        self,
        socket: Path,
        *,
        on_connect: Callable[[], Awaitable[None]],
        on_event: Callable[[Event], None],
        on_status: Callable[[Status], None] = lambda _: None,
        why_away: Callable[[], str] = lambda: "",
        on_devices: Callable[[DeviceNews], None] | None = None,
    ) -> None:
        self._socket = socket
        self._on_connect = on_connect
        self._on_event = on_event
        self._on_status = on_status
        self._why_away = why_away
        self._on_devices = on_devices
        self._told_away = ""
        self._seen: Status | None = None
        self._numbers = count(1)
        self._lines: dict[str, LineStatus] = {}
        self._waiting: dict[int, asyncio.Future[Reply]] = {}
        self._writer: asyncio.StreamWriter | None = None

    async def run(self) -> None:
        """Stay connected until cancelled."""
        while True:
            with suppress(OSError):
                reader, writer = await asyncio.open_unix_connection(str(self._socket))
                self._writer = writer
                try:
                    await self._converse(reader)
                finally:
                    self._hang_up()
            self._tell_away()
            await asyncio.sleep(_RECONNECT_S)

    async def set_plan(self, plan: Plan) -> int:
        """Put a whole plan in force; return the epoch of its whitelist. Raises Failed."""
        return (await self._ask(SetPlan(plan), Done)).epoch

    async def apply(self, change: Change, *, is_strict: bool = True) -> None:
        """Put a change in force; without `is_strict` an instance that will not start blocks its own
        clients only. Raises Failed; nothing has changed then.
        """
        await self._ask(ApplyChange(change, is_strict), Done)

    async def halt(self, reason: str) -> None:
        """Block every client until the next plan. Raises Failed."""
        await self._ask(Halt(one_line(reason)[:TEXT_MAX]), Done)

    async def renew_lease(self, until_ms: int) -> None:
        """Let clients through until then, in milliseconds of CLOCK_BOOTTIME, if the plan in force
        is leased; else the lease is kept for one that is. Raises Failed.
        """
        await self._ask(RenewLease(until_ms), Done)

    async def status(self) -> Status:
        """Return netd's status of the device. Raises Failed."""
        return await self._ask(GetStatus(), Status)

    async def try_paths(self, paths: Sequence[NodePath]) -> Sequence[Sentence]:
        """Return the engine's reason to refuse each of `paths`; empty if it accepts it. Raises
        Failed.
        """
        return (await self._ask(Try(tuple(paths)), Trial)).problems

    async def delays(self, probes: Sequence[Probe], url: str, timeout_ms: int) -> dict[str, Delay]:
        """Measure each probe. Raises Failed."""
        request = MeasureDelay(probes=tuple(probes), url=url, timeout_ms=timeout_ms)
        more_s = timeout_ms / 1000 + len(probes) * MEASURED_EACH_S
        answer = await self._ask(request, Delays, more_s=more_s)
        return answer.results

    async def send_alert(
        self, paths: Sequence[NodePath | KernelPath], url: str, title: str, body: str
    ) -> Sentence:
        """Send a message by the first path that leads there. Return the reason why it was not sent;
        empty if it was. Raises Failed.
        """
        request = SendAlert(paths=tuple(paths), url=url, title=title, body=body)
        return (await self._ask(request, AlertEnded)).problem

    async def fetch_page(self, asked: FetchPage) -> PageFetched:
        """Fetch a page by the first path that leads there. Raises Failed."""
        return await self._ask(asked, PageFetched, more_s=_ERRAND_S)

    async def locate(self, client: str) -> Located:
        """Return the place that the kernel sends `client` to. Raises Failed."""
        return await self._ask(Locate(client), Located)

    async def rotate(self, group: str, client: str | None) -> Rotated:
        """Give a client of a group, by its key, another member, or all of its clients. Raises
        Failed.
        """
        return await self._ask(Rotate(group=group, client=client), Rotated)

    async def connections(self, client: str) -> ConnectionsListed:
        """Return the live connections of `client`. Raises Failed."""
        return await self._ask(ListConnections(client), ConnectionsListed)

    async def close_connections(self, client: str, wanted: int | None) -> ConnectionsClosed:
        """Close a client's connection of that number, or all of them. Raises Failed."""
        return await self._ask(CloseConnections(client, wanted), ConnectionsClosed)

    async def counters(self) -> dict[int, RuleCount]:
        """Return the traffic of each enabled rule, by its id. Raises Failed."""
        return (await self._ask(GetCounters(), Counters)).rules

    async def check_system(self) -> Sequence[MachineFinding]:
        """Return what kernel and system lack. Raises Failed."""
        return (await self._ask(CheckSystem(), SystemChecked)).findings

    def lines(self) -> Mapping[str, LineStatus]:
        """Return the latest status of each line that netd sent; empty without netd."""
        return self._lines

    async def _converse(self, reader: asyncio.StreamReader) -> None:
        decoder = msgspec.msgpack.Decoder[Reply | News](Reply | News, dec_hook=decoded)
        listening = asyncio.create_task(self._listen(reader, decoder))
        try:
            with suppress(Failed):  # the connection broke at once; `run` connects again
                await self._ask(Watch(), Done)
                if self._on_devices is not None:
                    # A netd before an update does not know the request, and refuses it.
                    await self._ask(WatchDevices(), Done)
            await self._say_first(listening)
            await listening
        finally:
            listening.cancel()
            await asyncio.wait({listening})

    async def _say_first(self, listening: asyncio.Task[None]) -> None:
        """Call `on_connect`, repeatedly while netd refuses its requests."""
        delay = _RECONNECT_S
        while not listening.done():
            try:
                await self._on_connect()
            except EgressdError as error:
                if self._writer is None:
                    return
                log.warning("netd refused the plan; retrying", error=str(error))
                await asyncio.wait({listening}, timeout=delay)
                delay = min(2 * delay, _ASK_AGAIN_MAX_S)
            else:
                return

    async def _listen(
        self,
        reader: asyncio.StreamReader,
        decoder: msgspec.msgpack.Decoder[Reply | News],
    ) -> None:
        try:
            while True:
                message = await framing.read(reader, decoder)
                if isinstance(message, Event):
                    self._on_event(message)
                elif isinstance(message, LineNews):
                    self._lines = message.lines
                    self._tell()
                elif isinstance(message, StatusNews):
                    self._seen = message.status
                    self._tell()
                elif isinstance(message, DeviceNews):
                    if self._on_devices is not None:
                        self._on_devices(message)
                elif (waiting := self._waiting.pop(message.number, None)) and not waiting.done():
                    waiting.set_result(message)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        except ValueError as error:  # msgspec.DecodeError is one
            log.warning("invalid message from netd; reconnecting", error=str(error))
        finally:
            self._hang_up()

    def _hang_up(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None
            self._lines = {}
            self._seen = None
            self._told_away = ""
        waiting, self._waiting = self._waiting, {}
        for future in waiting.values():
            if not future.done():
                future.set_exception(Failed("talk to netd", "it went away before it answered"))

    def _tell_away(self) -> None:
        why = str(self._away())
        if why != self._told_away:
            self._told_away = why
            self._on_status(without_netd(as_sentence(why)))

    def _away(self) -> Failed:
        return Failed("talk to netd", self._why_away() or "it is not running")

    def _tell(self) -> None:
        if self._seen is not None:
            self._on_status(msgspec.structs.replace(self._seen, lines=self._lines))

    async def _ask(self, body: RequestBody, expected: type[T], more_s: float = 0.0) -> T:
        """Return netd's answer, for which it has `_ANSWER_S` plus `more_s`. Raises Failed."""
        within_s = _ANSWER_S + more_s
        if self._writer is None:
            raise self._away()
        number = next(self._numbers)
        future: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self._waiting[number] = future
        try:
            self._writer.write(framing.pack(Request(number=number, body=body), REQUEST_MAX))
            # Not wait_for: in Python 3.11 it loses a cancellation that arrives with the answer.
            async with asyncio.timeout(within_s):
                reply = (await future).body
        except TimeoutError:
            if isinstance(body, SetPlan | ApplyChange | Halt):
                # netd may still do it. After a reconnect, `on_connect` sends the wanted plan.
                self._hang_up()
            raise Failed("talk to netd", f"no answer within {within_s:g} seconds") from None
        except (ConnectionError, ValueError) as error:  # ValueError: it does not fit into a frame
            raise Failed("talk to netd", str(error)) from error
        finally:
            self._waiting.pop(number, None)
        if isinstance(reply, Refused):
            raise Failed(reply.action, reply.cause)
        if not isinstance(reply, expected):
            raise Failed("talk to netd", f"it answered with {type(reply).__name__}")
        return reply
