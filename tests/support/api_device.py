"""The whole API in process: real use cases, planner and database, a double of netd."""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch
from urllib.parse import unquote

import httpx
import msgspec
from fastapi import FastAPI
from starlette.types import Message, Scope

from egressd.api import document
from egressd.api.app import create_app
from egressd.api.endpoints import Endpoint
from egressd.api.gate import Access
from egressd.api.services import Services
from egressd.app.events import EventHub
from egressd.model.desired import DesiredState, Edit
from egressd.model.errors import Failed
from egressd.model.exits import EXIT_URL
from egressd.model.findings import MachineFinding
from egressd.model.history import (
    BLOCKS,
    DELAY_BLOCK,
    Blocks,
    By,
    Exchanged,
    HistoryKey,
    HistoryStep,
    KeyKind,
    SlotStart,
    Sums,
    TrafficSlot,
    block_of,
    exchanged_in,
)
from egressd.model.messages import Event
from egressd.model.site import MemberState
from egressd.model.timelines import Part, Recording, StateChange, TimelineWrite
from egressd.model.tokens import Need
from egressd.model.trial import ChangeTrial
from egressd.model.undo import LoggedChange, PastChange, Reversal
from egressd.model.wording import Sentence
from egressd.service.alert_checks import inner_problems
from egressd.service.alerts import Alerts
from egressd.service.bindings import Bindings
from egressd.service.connections import Connections
from egressd.service.devices import Devices
from egressd.service.exits import ExitPolicy, Exits
from egressd.service.history import History
from egressd.service.journal import Journal
from egressd.service.judge import Judge, Notice
from egressd.service.machine_check import MachineCheck
from egressd.service.overview import Overviews, TimedBackups
from egressd.service.parts import PartStates
from egressd.service.rotations import Rotations
from egressd.service.route_probe import Why
from egressd.service.subscriptions import Subscriptions
from egressd.service.tokens import Tokens
from egressd.service.trials import ChangeTrials
from egressd.service.undo import Undo
from egressd.store.database import Database
from tests.support.netd_double import NetdDouble
from tests.support.use_cases import (
    RESOLVERS,
    Bench,
    KnownLeases,
    KnownVendors,
    MemoryAlerts,
    MemoryChanges,
    MemoryDevices,
    MemoryExits,
    MemoryFetches,
    MemoryRotations,
    MemoryTokens,
)

TOKEN = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFG"
PREFIX = "/svc/api/v1"
NOW = "2026-11-20T22:58:40.125Z"
SECOND = "2026-11-20T22:58:40Z"


class Admission:
    """The license, in the state that a test needs."""

    def __init__(self) -> None:
        self.refused: str | None = None
        self.calls_left: int | None = None
        self.broken = False
        self.spent = 0

    def refusal(self) -> str | None:
        if self.calls_left == 0:
            return "API_TRIAL_QUOTA_EXHAUSTED"
        return self.refused

    async def spend(self) -> bool:
        if self.broken:
            raise Failed("store the count of trial calls", "disk full")
        if self.calls_left is not None:
            if self.calls_left == 0:
                return False
            self.calls_left -= 1
        self.spent += 1
        return True


class SessionDouble:
    """A console session, named by its cookie."""

    def __init__(self, device: Device, cookie: str) -> None:
        self._device = device
        self.name = cookie

    def may(self, need: Need) -> bool:
        return True

    def is_live(self) -> bool:
        return self.name in self._device.sessions


BEGUN_AT: Final = 1_763_679_520.0
"""The Unix time of a device when a test begins."""


class Device:
    """A device that serves its API. Requests carry the token by default."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.admission = Admission()
        self.own_findings: Callable[[], Sequence[MachineFinding]] = tuple
        self.token = TOKEN
        self.sessions = {"session=1"}
        self.events: asyncio.Queue[Event | None] = asyncio.Queue()
        self.changes = MemoryChanges()
        self.journal = Journal(self.changes, self.events.put_nowait)
        self.notices: list[Notice] = []
        judge = self.judge = Judge(
            lambda: bench.ledger.state,
            lambda: RESOLVERS,
            self.notices.append,
            lambda: SECOND,
        )
        self.timed_backups: TimedBackups | None = None
        self.overviews = Overviews(
            bench.ledger,
            bench.netd,
            bench.system,
            judge,
            lambda: NOW,
            timed_backups=lambda: self.timed_backups,
        )
        self.now = BEGUN_AT
        self.hub = EventHub(lambda: self.now)
        self.exits = Exits(
            bench.ledger,
            bench.netd,
            lambda: RESOLVERS,
            clock=lambda: SECOND,
            policy=ExitPolicy(url=EXIT_URL, interval_s=900),
            record=MemoryExits(),
            notify=self.notices.append,
        )
        self.own_problems: tuple[Sentence, ...] = ()
        self.alerts = Alerts(
            bench.ledger,
            bench.netd,
            lambda: RESOLVERS,
            record=MemoryAlerts(),
            clock=lambda: SECOND,
            problems=lambda: self.own_problems,
            inner=lambda url: inner_problems(url, bench.around),
            host="gw1",
            now=lambda: self.now,
            uptime=lambda: self.now,
            local=lambda at: datetime.fromtimestamp(at, UTC),
        )
        self.fetches = MemoryFetches()
        self.subscriptions = Subscriptions(
            bench.ledger,
            bench.netd,
            lambda: RESOLVERS,
            store=self.fetches,
            clock=lambda: SECOND,
            around=lambda: bench.around,
            notify=self.notices.append,
            note=self.journal.note,
            now=lambda: self.now,
        )
        self.history = self._new_history()
        self.members: list[MemberState] = []
        self.devices = Devices(
            bench.ledger,
            MemoryDevices(),
            vendors=KnownVendors(),
            leases=KnownLeases(),
            now=lambda: self.now,
            notify=self.notices.append,
            bindings=Bindings(
                bench.ledger,
                bench.clock,
                note=lambda record, subject: None,
                is_standby=lambda: False,
            ),
        )
        self.token_store = MemoryTokens()
        self.tokens = Tokens(self.token_store, self._clock)
        self.rotation_store = MemoryRotations()
        self.rotations = self._new_rotations()
        self.app = create_app(
            Services(
                ledger=bench.ledger,
                system=bench.system,
                nodes=bench.nodes,
                lines=bench.lines,
                rules=bench.rules,
                whitelist=bench.whitelist,
                proxy_services=bench.services,
                backups=bench.backups,
                settings=bench.settings,
                overviews=self.overviews,
                why=Why(bench.ledger, bench.netd, lambda: RESOLVERS, judge),
                journal=self.journal,
                trials=ChangeTrials(
                    bench.ledger,
                    bench.store,
                    self.journal,
                    now=lambda: self.now,
                    is_shared=False,
                ),
                undo=Undo(
                    bench.ledger,
                    bench.store,
                    self.journal,
                    quota=lambda: bench.quota,
                    checks=bench.restore_checks,
                ),
                machine_check=MachineCheck(bench.netd, self._own_findings),
                history=self.history,
                exits=self.exits,
                groups=bench.groups,
                rotations=self.rotations,
                subscriptions=self.subscriptions,
                alerts=self.alerts,
                devices=self.devices,
                connections=Connections(self.bench.ledger, self.bench.netd),
                tokens=self.tokens,
                members=lambda: self.members,
            ),
            access=Access(
                token=self._read_token,
                admission=self.admission,
                scoped=self.tokens.find,
                link=self.tokens.find_link,
                session_of=self._session_of,
            ),
            events=self._stream,
            latest_events=self.hub.latest,
        )
        self.client = self.client_at("192.0.2.10")

    def _new_rotations(self) -> Rotations:
        return Rotations(
            self.bench.ledger,
            self.bench.netd,
            self.bench.groups,
            self.exits,
            lambda: RESOLVERS,
            store=self.rotation_store,
            clock=lambda: SECOND,
            note=self.journal.note,
            now=self._clock,
            pause=self._let_pass,
        )

    async def restart_rotations(self) -> None:
        """Let the rotations be those of the next run of the api, which knows what is stored."""
        await self.rotations.close()
        vars(self.rotations).update(vars(self._new_rotations()))
        await self.rotations.open()

    async def _let_pass(self, seconds: float) -> None:
        self.now += seconds
        await asyncio.sleep(0)

    def _new_history(self) -> History:
        ledger = self.bench.ledger
        return History(
            self.bench.netd,
            MemoryHistory(),
            rules=lambda: ledger.state.rules,
            parts=PartStates(lambda: ledger.state, self.exits.take_delays),
            now=lambda: self.now,
        )

    async def become(self, state: DesiredState) -> None:
        """Reset the device to `state`, and forget everything else."""
        # Lists are cached by revision, and revisions only rise.
        fresh = msgspec.structs.replace(state, revision=self.bench.ledger.revision + 1)
        self.bench.store.real = MemoryStore(fresh)
        self.bench.store.failing = []
        self.bench.quota = 10
        vars(self.bench.netd).update(vars(NetdDouble()))
        vars(self.admission).update(vars(Admission()))
        self.token = TOKEN
        self.sessions = {"session=1"}
        self.own_findings = tuple
        self.token_store = MemoryTokens()
        vars(self.tokens).update(vars(Tokens(self.token_store, self._clock)))
        vars(self.history).update(vars(self._new_history()))
        self.rotation_store = MemoryRotations()
        vars(self.rotations).update(vars(self._new_rotations()))
        await self.journal.flush()
        self.changes.records.clear()
        self.judge.forget()
        self.notices.clear()
        while not self.events.empty():
            self.events.get_nowait()
        await self.bench.ledger.load()
        await self.bench.ledger.resync()

    def client_at(self, address: str, token: str | None = TOKEN) -> httpx.AsyncClient:
        """Return a client with that source address."""
        headers = {} if token is None else {"authorization": f"Bearer {token}"}
        transport = httpx.ASGITransport(self.app, client=(address, 40000))
        return httpx.AsyncClient(transport=transport, base_url="http://device", headers=headers)

    async def call(self, method: str, path: str, body: Any = None, **more: Any) -> httpx.Response:
        """Call an endpoint of the API; `path` is relative to its prefix."""
        if body is not None:
            more["json"] = body
        return await self.client.request(method, PREFIX + path, **more)

    async def answer(self, method: str, path: str, body: Any = None, **more: Any) -> Any:
        """Return the document that a call is answered with, status 200."""
        response = await self.call(method, path, body, **more)
        assert response.status_code == 200, response.text
        return response.json()

    async def problem(self, method: str, path: str, body: Any = None, **more: Any) -> str:
        """Return the text of a call that is answered with status 400."""
        response = await self.call(method, path, body, **more)
        assert response.status_code == 400, response.text
        document = response.json()
        assert set(document) == {"error"}
        text: str = document["error"]
        return text

    async def raw(self, method: str, path: str, token: str | None = TOKEN) -> tuple[int, Any]:
        """Return status and document of a request whose path is sent unchanged, byte for byte."""
        sent: list[Message] = []

        async def receive() -> Message:
            return {"type": "http.request", "body": b"", "more_body": False}

        async def send(message: Message) -> None:
            sent.append(message)

        scope = {
            "type": "http",
            "method": method,
            "path": unquote(path),
            "raw_path": path.encode(),
            "query_string": b"",
            "headers": [(b"authorization", f"Bearer {token}".encode())] if token else [],
            "client": ("192.0.2.10", 40000),
        }
        await self.app(scope, receive, send)
        return sent[0]["status"], json.loads(sent[1]["body"])

    def _session_of(self, scope: Scope) -> SessionDouble | None:
        cookie = dict(scope["headers"]).get(b"cookie", b"").decode()
        return SessionDouble(self, cookie) if cookie in self.sessions else None

    def _own_findings(self) -> Sequence[MachineFinding]:
        return self.own_findings()

    def _clock(self) -> float:
        return self.now

    def _read_token(self) -> str:
        if not self.token:
            raise Failed("read the API token", "no such file")
        return self.token

    async def _stream(self) -> AsyncIterator[Event]:
        while (event := await self.events.get()) is not None:
            yield event


class MemoryHistory:
    """A history in memory. The real one's promises are tested by its own tests."""

    def __init__(self) -> None:
        self.set_aside = 0
        self._slots: dict[tuple[HistoryStep, int], Blocks] = {}
        self._keys: dict[tuple[KeyKind, int], HistoryKey] = {}
        self._growing: set[SlotStart] = set()
        self._changes: list[StateChange] = []
        self._recordings: dict[int, Recording] = {}

    async def open(self) -> Sequence[HistoryKey]:
        return [*self._keys.values()]

    async def starts(self, step: HistoryStep) -> Sequence[int]:
        return [start for its, start in self._slots if its is step]

    async def growing(self, step: HistoryStep) -> Sequence[int]:
        return [start for its, start in self._growing if its is step]

    async def slot(self, step: HistoryStep, start: int) -> Blocks:
        return self._slots.get((step, start), {})

    async def write(
        self,
        slots: Sequence[TrafficSlot],
        keys: Sequence[HistoryKey],
        growing: Collection[SlotStart] = (),
        timelines: TimelineWrite = TimelineWrite(),  # noqa: B008
    ) -> None:
        self._changes += timelines.changes
        self._recordings.update({each.number: each for each in timelines.recordings})
        self._growing -= {(slot.step, slot.start) for slot in slots}
        self._growing |= {*growing}
        self._slots.update({(slot.step, slot.start): slot.blocks for slot in slots})
        self._keys.update({(key.by, key.number): key for key in keys})

    async def series(
        self, step: HistoryStep, by: By, number: int, starts: range
    ) -> dict[int, Exchanged]:
        return {
            start: exchanged_in(blocks.get(block_of(by, number), b""), number)
            for (its, start), blocks in self._slots.items()
            if its is step and starts.start <= start < starts.stop
        }

    async def sums(self, step: HistoryStep, by: By, starts: Sequence[int]) -> Sums:
        sums = Sums()
        for start in starts:
            for block, codes in self._slots.get((step, start), {}).items():
                if block in BLOCKS[by]:
                    sums.add(block, codes)
        return sums

    async def totals(
        self, step: HistoryStep, by: By, since: Mapping[int, int], starts: Sequence[int]
    ) -> dict[int, Exchanged]:
        assert not since, "no test of the API has as many keys as the history"
        return {}

    async def delays(self, step: HistoryStep, starts: range) -> dict[int, bytes]:
        return {
            start: blocks.get(DELAY_BLOCK, b"")
            for (its, start), blocks in self._slots.items()
            if its is step and starts.start <= start < starts.stop
        }

    async def states(self) -> tuple[Sequence[StateChange], Sequence[Recording]]:
        return [*{each[:2]: each for each in self._changes}.values()], [*self._recordings.values()]

    async def changes(self, part: Part, number: int | None, start: int) -> Sequence[StateChange]:
        own = [each for each in self._changes if each.part == part]
        return [each for each in own if number in (None, each.number)]

    async def close(self) -> None:
        pass


class MemoryStore:
    """A store in memory. The real one's promises are tested by its own tests."""

    def __init__(self, state: DesiredState) -> None:
        self._stored = state
        self._open: DesiredState | None = None
        self._logged: LoggedChange | None = None
        self._log: dict[int, LoggedChange] = {}
        self._trial: tuple[ChangeTrial, DesiredState] | None = None

    async def load(self) -> DesiredState:
        return self._stored

    async def begin(
        self, edits: Sequence[Edit], revision: int, logged: LoggedChange | None = None
    ) -> None:
        assert self._open is None
        self._open = self._stored.with_edits(edits, revision)
        self._logged = logged

    async def commit(self) -> None:
        assert self._open is not None
        self._stored, self._open = self._open, None
        if self._logged is not None:
            self._log[self._stored.revision] = self._logged
            if self._logged.ends_trial:
                self._trial = None

    async def past_changes(self, number: int) -> list[PastChange]:
        return [
            PastChange(
                revision=revision,
                at=each.at,
                who=each.who,
                source=each.source,
                what=each.what,
                text=each.text,
                undoes=each.undoes,
                has_inverse=True,
            )
            for revision, each in sorted(self._log.items(), reverse=True)
        ][:number]

    async def changes_about(self, revision: int) -> list[PastChange]:
        found = [each for each in await self.past_changes(1000) if each.revision == revision]
        for each in found:
            undoing = [it for it in await self.past_changes(1000) if it.undoes == each.revision]
            found += undoing
        return found

    async def trial(self) -> ChangeTrial | None:
        return self._trial and self._trial[0]

    async def trial_state(self) -> DesiredState | None:
        return self._trial and self._trial[1]

    async def begin_trial(self, begun: ChangeTrial, state: DesiredState) -> bool:
        is_new = self._trial is None
        self._trial = self._trial or (begun, state)
        return is_new

    async def end_trial(self) -> bool:
        was, self._trial = self._trial, None
        return was is not None

    async def inverse(self, revision: int) -> list[Reversal] | None:
        return [*self._log[revision].reversals] if revision in self._log else None

    async def entries_after(self, revision: int) -> None:
        pass

    async def rollback(self) -> None:
        self._open = None

    async def backup(self, path: Path) -> None:
        with tempfile.TemporaryDirectory() as folder:
            database = Database(Path(folder))
            await database.open()
            await database.begin(DesiredState().edits_to(self._stored), 1)
            await database.commit()
            await database.backup(path)
            await database.close()

    async def read_backup(self, path: Path) -> DesiredState:
        return await Database(path.parent).read_backup(path)


_build_document = document.build


_documents: list[dict[str, Any]] = []


def build_document_once(app: FastAPI, endpoints: Iterable[Endpoint]) -> dict[str, Any]:
    """Build the document once: it is the same for every device, and takes half of the time to make
    one.
    """
    if not _documents:
        _documents.append(_build_document(app, endpoints))
    return _documents[0]


async def start_device() -> Device:
    """Return a running device with an empty configuration."""
    store = MemoryStore(DesiredState())
    bench = Bench(store, NetdDouble(), Path(tempfile.gettempdir()))
    await bench.start()
    with patch.object(document, "build", build_document_once):
        return Device(bench)
