"""netd's socket: access control, and the work for each request.

The api is not trusted: a request is data of the model, whose fields the decoder checks one by one,
and whose relations between fields `egressd.netd.reconciler.validation` checks. ``docs/security.md``
lists the possible requests.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final

import msgspec
import structlog

from egressd.model.delays import Delay
from egressd.model.errors import Failed, Invalid
from egressd.model.findings import MachineFinding
from egressd.model.forms import Number
from egressd.model.messages import (
    REQUEST_MAX,
    AlertEnded,
    ApplyChange,
    CheckSystem,
    CloseConnections,
    Counters,
    Delays,
    DeviceNews,
    Done,
    FetchPage,
    GetCounters,
    GetStatus,
    Halt,
    ListConnections,
    Locate,
    MeasureDelay,
    News,
    Probe,
    Refused,
    RenewLease,
    Reply,
    ReplyBody,
    RequestBody,
    Rotate,
    Rotated,
    SendAlert,
    SetPlan,
    SystemChecked,
    Trial,
    Try,
    Watch,
    WatchDevices,
)
from egressd.model.names import one_line
from egressd.netd.engine.protocol import ProbeDocument
from egressd.netd.ipc.allowance import CONNECTIONS_MAX, Allowance, weight
from egressd.netd.ports import ConnectionsPort, ErrandsPort, ReconcilerPort
from egressd.netd.reconciler import validation
from egressd.netd.reconciler.reconciler import Conflict
from egressd.netd.system import framing
from egressd.netd.system.processes import peer_of
from egressd.planner.documents import probe_document
from egressd.planner.groups import Turn

log = structlog.get_logger()

_UNREAD_MAX: Final = 4 << 20
"""Bytes of news that may wait for a connection that does not read, such as a frozen api's."""
_FRAME_S: Final = 30.0
"""Seconds that a request may take to arrive after its first bytes."""
_PAGES_MAX: Final = 1 << 20
"""Bytes of pages that one measurement may return."""
_QUIET_S: Final = 60.0
_SHOWN: Final = 200
"""Characters of a fault, and of its place, that an error repeats."""


class Server:
    """Answers the api on a Unix socket that only its user and root can open.

    The file's mode keeps other users out; the peer's credentials are checked as well, since the
    run directory may have been created by hand.
    """

    def __init__(
        self,
        path: Path,
        uid: int,
        reconciler: ReconcilerPort,
        check_system: Callable[[], tuple[MachineFinding, ...]] = tuple,
        devices_watched: Callable[[], None] = lambda: None,
        *,
        errands: ErrandsPort | None = None,
        connections: ConnectionsPort | None = None,
    ) -> None:
        """`check_system` reads files for what kernel and system lack; it runs in a thread.
        `devices_watched` is called for each connection that begins to watch devices.
        """
        self._path = path
        self._uid = uid
        self._reconciler = reconciler
        self._check_system = check_system
        self._devices_watched = devices_watched
        self._errands = errands
        self._connections = connections
        self._watchers: set[asyncio.StreamWriter] = set()
        self._device_watchers: set[asyncio.StreamWriter] = set()
        self._planner: asyncio.StreamWriter | None = None
        """The connection that sends plans: two apis would each undo the other's plans."""
        self._allowances: dict[int, Allowance] = {}
        """User id -> the user's allowance."""
        self._quiet_until = 0.0

    async def open(self) -> None:
        """Listen. A socket file of an earlier netd is replaced, a missing folder created."""
        self._path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        self._path.unlink(missing_ok=True)
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        mask = os.umask(0o177)
        try:
            listener.bind(str(self._path))
        finally:
            os.umask(mask)
        os.chown(self._path, self._uid, -1)
        # Not `start_unix_server`: from Python 3.13 on it looks up the file of a socket passed to it
        # (CPython #133354), which a worker may not see, and removes the file when it closes.
        self._server = await asyncio.start_server(self._serve, sock=listener)

    async def verify(self) -> None:
        """Listen anew if the socket's file is gone, since the run directory was cleared.

        Present connections stay, but no client could open a new one.
        """
        try:
            if not self._path.is_socket():
                log.warning("socket file missing; listening again", file=str(self._path))
                self._server.close()
                await self.open()
        except OSError as error:
            log.warning("cannot recreate the socket", error=str(error))

    async def close(self) -> None:
        """Stop listening and close the connections that watch."""
        self._server.close()
        for writer in self._watchers | self._device_watchers:
            writer.close()
        self._path.unlink(missing_ok=True)

    def publish(self, news: News) -> None:
        """Send `news` to every connection that watches."""
        is_of_devices = isinstance(news, DeviceNews)
        watchers = self._device_watchers if is_of_devices else self._watchers
        frame = framing.pack(news) if watchers else b""
        for writer in watchers:
            if writer.transport.get_write_buffer_size() > _UNREAD_MAX:
                writer.transport.abort()  # after a reconnect the client asks for the status
            else:
                writer.write(frame)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        pid, uid = peer_of(writer)
        if uid not in (0, self._uid):
            log.warning("refused a connection", uid=uid, pid=pid)
            writer.close()
            return
        allowance = self._allowances.setdefault(uid, Allowance())
        if allowance.connections >= CONNECTIONS_MAX:
            self._warn("refused a connection: too many connections", pid=pid)
            writer.close()
            return
        allowance.connections += 1
        tasks: set[asyncio.Task[None]] = set()
        try:
            while True:
                await writer.drain()  # read no requests from a client that does not read answers
                length = await framing.read_length(reader, REQUEST_MAX)
                await allowance.bytes.borrow(weight(length))
                give_back = partial(_give_back, allowance, weight(length))
                try:
                    async with asyncio.timeout(_FRAME_S):
                        asked = _NUMBERED.decode(await reader.readexactly(length))
                except BaseException:
                    give_back()
                    raise
                task = asyncio.create_task(self._answer(asked, allowance, writer))
                tasks.add(task)
                task.add_done_callback(tasks.discard)
                task.add_done_callback(give_back)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        except TimeoutError:
            self._warn("dropped a connection: incomplete request", pid=pid)
        except (ValueError, RecursionError) as error:  # msgspec.DecodeError is the first
            self._warn("dropped a connection: invalid request", pid=pid, error=_shown(error))
        finally:
            allowance.connections -= 1
            self._watchers.discard(writer)
            self._device_watchers.discard(writer)
            if self._planner is writer:
                self._planner = None
            writer.close()

    def _warn(self, what: str, **details: object) -> None:
        """Log a fault of the api, at most once in `_QUIET_S`, since it may repeat the fault."""
        now = asyncio.get_running_loop().time()
        if now >= self._quiet_until:
            self._quiet_until = now + _QUIET_S
            log.warning(what, **details)

    async def _answer(
        self, asked: _Numbered, allowance: Allowance, writer: asyncio.StreamWriter
    ) -> None:
        body: ReplyBody
        try:
            body = await self._do(read_request(asked.body), allowance, writer)
        except Invalid as error:
            body = Refused(kind="invalid", action="check the request", cause=str(error))
            self._warn("refused a request", why=one_line(body.cause))
        except Conflict as error:
            body = Refused(kind="conflict", action="apply a change", cause=str(error))
        except Failed as error:
            body = Refused(kind="failed", action=error.action, cause=error.cause)
        except Exception as error:
            log.exception("unexpected error in a request")
            cause = f"{type(error).__name__}; netd's log says more"
            body = Refused(kind="failed", action="answer the request", cause=cause)
        with suppress(ConnectionError):
            writer.write(framing.pack(Reply(number=asked.number, body=body)))
            await writer.drain()

    async def _do(
        self, body: RequestBody, allowance: Allowance, writer: asyncio.StreamWriter
    ) -> ReplyBody:
        reconciler = self._reconciler
        match body:
            case SetPlan() | ApplyChange() | Halt():
                if self._planner not in (None, writer):
                    raise Failed("take a plan", "another api says what is wanted")
                self._planner = writer
                async with allowance.plans.lent(1):
                    return await self._plan(body)
            case RenewLease(until_ms=until_ms):
                if self._planner not in (None, writer):
                    raise Failed("renew the lease", "another api says what is wanted")
                await reconciler.renew_lease(until_ms)  # it waits for no plan
                return Done()
            case GetStatus():
                return await reconciler.status()
            case Try() | MeasureDelay() | SendAlert() | FetchPage():
                return await self._by_paths(body, allowance)
            case Locate() | Rotate() | ListConnections() | CloseConnections():
                return await self._of_clients(body)
            case GetCounters():
                return Counters(await reconciler.counters())
            case CheckSystem():
                async with allowance.checks.lent(1):
                    return SystemChecked(await asyncio.to_thread(self._check_system))
            case Watch():
                self._watchers.add(writer)
                writer.write(framing.pack(reconciler.line_news))
                writer.write(framing.pack(reconciler.status_news))
                return Done()
            case WatchDevices():
                self._device_watchers.add(writer)
                self._devices_watched()
                return Done()

    async def _plan(self, body: SetPlan | ApplyChange | Halt) -> Done:
        match body:
            case SetPlan(plan=plan):
                return Done(epoch=await self._reconciler.set_plan(plan))
            case ApplyChange(change=change, is_strict=is_strict):
                await self._reconciler.apply(change, is_strict=is_strict)
            case Halt(reason=reason):
                await self._reconciler.halt(reason)
        return Done()

    async def _of_clients(
        self, body: Locate | Rotate | ListConnections | CloseConnections
    ) -> ReplyBody:
        match body:
            case Locate(client=client):
                return await self._reconciler.locate(client)
            case Rotate(group=group, client=one):
                turn = Turn() if one is None else Turn((one,), and_slots=False)
                moved = (await self._reconciler.rotate({group: turn}))[group]
                return Rotated(len(moved), "" if one is None else moved.get(one, ""))
            case _ if self._connections is None:
                raise Failed("look at connections", "this netd has no kernel")
            case ListConnections(client=client):
                return await self._connections.list(client)
            case CloseConnections(client=client, wanted=wanted):
                return await self._connections.close_some(client, wanted)

    async def _by_paths(
        self, body: Try | MeasureDelay | SendAlert | FetchPage, allowance: Allowance
    ) -> ReplyBody:
        """Do what goes by paths that the request has, and concerns no client."""
        match body:
            case Try(paths=paths):
                validation.check_paths((f"paths[{n}]", path) for n, path in enumerate(paths))
                configs = [probe_document(path) for path in paths]
                return Trial(tuple(await self._reconciler.try_configs(configs)))
            case MeasureDelay():
                async with allowance.probes.lent(len(body.probes)):
                    return Delays(await self._measure(body))
            case _ if self._errands is None:
                raise Failed("do the errand", "this netd does none")
            case SendAlert(url=url, title=title, body=text):
                async with allowance.errands.lent(1):
                    return AlertEnded(await self._errands.send(_ways(body), url, title, text))
            case FetchPage():
                async with allowance.errands.lent(1):
                    return await self._errands.fetch(_ways(body), body)

    async def _measure(self, asked: MeasureDelay) -> dict[str, Delay]:
        if sum(probe.read_max for probe in asked.probes) > _PAGES_MAX:
            raise Invalid(f"probes must not read more than {_PAGES_MAX} bytes in all")
        validation.check_paths(
            (f"probes[{n}].path", probe.path) for n, probe in enumerate(asked.probes)
        )
        # 1,000 documents take 50 ms.
        probes = await asyncio.to_thread(_documents, asked.probes)
        return await self._reconciler.delays(probes, asked.url, asked.timeout_ms)


def _ways(asked: SendAlert | FetchPage) -> list[ProbeDocument]:
    """Return the documents of the paths of a request, in their order. Raises Invalid."""
    paths = asked.paths
    validation.check_paths((f"paths[{n}]", path) for n, path in enumerate(paths))
    return [ProbeDocument(name=str(n), config=probe_document(path)) for n, path in enumerate(paths)]


class _Numbered(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A `Request` whose body is not decoded yet, so that a refusal of it has its number."""

    number: Number
    body: msgspec.Raw


_NUMBERED: Final = msgspec.msgpack.Decoder(_Numbered)
_BODIES: Final[msgspec.msgpack.Decoder[RequestBody]] = msgspec.msgpack.Decoder(RequestBody)


def read_request(body: bytes | msgspec.Raw) -> RequestBody:
    """Decode a request's body. Raises Invalid, naming the field, if it does not fit the model."""
    try:
        return _BODIES.decode(body)
    except (msgspec.DecodeError, RecursionError) as error:
        raise Invalid(_shown(error)) from error


def _give_back(allowance: Allowance, part: int, *_: object) -> None:
    allowance.bytes.give_back(part)


def _documents(probes: Iterable[Probe]) -> list[ProbeDocument]:
    return [
        ProbeDocument(name=probe.name, config=probe_document(probe.path), read_max=probe.read_max)
        for probe in probes
    ]


def _shown(error: Exception) -> str:
    """Return the fault of a decoder's error, after the name of its field."""
    what, _, place = one_line(str(error)).rpartition(" - at `$")
    if what.startswith("Expected `str` matching regex"):
        what = "it must have the form that such a value has"
    field = place.strip(".`")
    return f"{field[-_SHOWN:]}: {what[:_SHOWN]}" if what else field[:_SHOWN]
