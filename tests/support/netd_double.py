"""A double of netd: the plan that would be in force, without a kernel."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from egressd.model.connections import TrackedConnection
from egressd.model.delays import Delay
from egressd.model.errors import Failed
from egressd.model.findings import MachineFinding
from egressd.model.instances import KernelPath, NodePath
from egressd.model.messages import (
    ConnectionsClosed,
    ConnectionsListed,
    FetchPage,
    LineStatus,
    Located,
    PageFetched,
    Probe,
    Rotated,
    RuleCount,
    Status,
)
from egressd.model.plan import Change, Plan, difference
from egressd.model.wording import NONE, Sentence, say


class NetdDouble:
    """netd without a machine: it keeps the plan that would be in force.

    `behaviour` lists the outcomes of the next plans or changes, one word a call; without one, all
    succeed. ``refuse``: it refuses. ``lose``: it carries out the call, but the connection breaks
    before the answer. ``break``: the connection breaks before it receives the call. After the last
    two it is away until `return_after_restart`.
    """

    def __init__(self) -> None:
        self.plan = Plan()
        self.asked: list[Plan | Change] = []
        self.behaviour: list[str] = []
        self.is_away = False
        self.was_strict = True
        """True if the last change was to be refused if one of its instances would not start."""
        self.hold: asyncio.Event | None = None
        self.shown = Status(state="running", revision=0)
        self.engine_refuses: dict[str, str] = {}
        self.delay_of: Callable[[Any], Delay] = lambda _: Delay(delay=42)
        self.tried: list[NodePath] = []
        self.members: dict[str, str] = {}
        self.counted: dict[int, RuleCount] = {}
        self.pages_asked: list[FetchPage] = []
        self.page: Callable[[str], PageFetched] = lambda _: PageFetched(
            reason=say("page-status", status=404)
        )
        self.alerts: list[tuple[tuple[NodePath | KernelPath, ...], str, str, str]] = []
        self.alert_problem: Callable[[str], Sentence] = lambda _: NONE
        """Returns why a message to a URL is not sent."""
        self.lacking: tuple[MachineFinding, ...] = ()
        self.flows: dict[str, list[TrackedConnection]] = {}
        """Client -> its live connections, of which it lists and closes two at a time."""
        self.rotations: list[tuple[str, str | None]] = []
        """The groups that were rotated, with the one client or None."""
        self.moved_to = "node:1"
        """The key of the member that a rotated client gets."""
        self.epoch = 0
        """The epoch that it gives the whitelists of whole plans, if not the plans' own."""

    async def set_plan(self, plan: Plan) -> int:
        await self._meet(plan)
        return self.epoch or self.plan.whitelist.epoch

    async def apply(self, change: Change, *, is_strict: bool = True) -> None:
        self.was_strict = is_strict
        await self._meet(change)

    async def status(self) -> Status:
        self.reach()
        return msgspec.structs.replace(self.shown, revision=self.plan.revision)

    def lines(self) -> Mapping[str, LineStatus]:
        return {} if self.is_away else self.shown.lines

    async def try_paths(self, paths: Sequence[NodePath]) -> Sequence[str]:
        self.reach()
        self.tried += paths
        return self.verdicts([msgspec.json.encode(path).decode() for path in paths])

    def verdicts(self, texts: Sequence[str]) -> list[str]:
        return [
            next((why for part, why in self.engine_refuses.items() if part in text), "")
            for text in texts
        ]

    async def delays(self, probes: Sequence[Probe], url: str, timeout_ms: int) -> dict[str, Delay]:
        self.reach()
        return {probe.name: self.delay_of(probe) for probe in probes}

    async def counters(self) -> dict[int, RuleCount]:
        self.reach()
        return self.counted

    async def check_system(self) -> Sequence[MachineFinding]:
        self.reach()
        return self.lacking

    async def send_alert(
        self, paths: Sequence[NodePath | KernelPath], url: str, title: str, body: str
    ) -> Sentence:
        self.reach()
        self.alerts.append((tuple(paths), url, title, body))
        return self.alert_problem(url)

    async def fetch_page(self, asked: FetchPage) -> PageFetched:
        self.reach()
        self.pages_asked.append(asked)
        return self.page(asked.url)

    async def locate(self, client: str) -> Located:
        self.reach()
        return Located(self.plan.hosts.get(client, 0), self.members)

    async def rotate(self, group: str, client: str | None) -> Rotated:
        self.reach()
        self.rotations.append((group, client))
        return Rotated(1 if client else 2, self.moved_to if client else "")

    async def connections(self, client: str) -> ConnectionsListed:
        self.reach()
        found = self.flows.get(client, [])
        return ConnectionsListed(len(found), tuple(found[:2]))

    async def close_connections(self, client: str, wanted: int | None) -> ConnectionsClosed:
        self.reach()
        found = self.flows.get(client, [])
        closed = [row for row in found if wanted in (None, row.id)][:2]
        self.flows[client] = left = [row for row in found if row not in closed]
        return ConnectionsClosed(len(closed), len(left) if wanted is None else 0)

    def return_after_restart(self) -> None:
        self.is_away = False

    def reach(self) -> None:
        if self.is_away:
            raise Failed("talk to netd", "it is not running")

    async def _meet(self, wanted: Plan | Change) -> None:
        self.reach()
        self.asked.append(wanted)
        if self.hold is not None:
            await self.hold.wait()
        behaviour = self.behaviour.pop(0) if self.behaviour else "obey"
        if behaviour == "refuse":
            raise Failed("load the rules", "the kernel would not")
        if behaviour != "break":
            self._obey(wanted)
        if behaviour in ("break", "lose"):
            self.is_away = True
            raise Failed("talk to netd", "it went away before it answered")

    def _obey(self, wanted: Plan | Change) -> None:
        if isinstance(wanted, Plan):
            self.plan = difference_applied(wanted)
            return
        try:
            self.plan.apply(wanted)
        except ValueError as conflict:
            raise Failed("apply a change", str(conflict)) from conflict


def difference_applied(plan: Plan) -> Plan:
    """Return a copy of `plan`, so that changes to one do not affect the other."""
    copy = Plan()
    copy.apply(difference(copy, plan))
    return copy
