"""The router's process: netd's own reconciler, without an engine.

It reads JSON requests from a pipe and answers each.
"""

from __future__ import annotations

import asyncio
import itertools
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final

import msgspec

from egressd.app import logs
from egressd.app.netd_parts import compose
from egressd.model.device import InterfaceRoles
from egressd.model.messages import Event, News
from egressd.model.nouns import Line
from egressd.model.plan import Egress, Limit, Plan
from egressd.model.wording import encoded
from egressd.netd.dataplane.kernel_state import KernelState
from egressd.netd.dataplane.speed_limits import SpeedLimits
from egressd.netd.engine.launch import Account
from egressd.netd.engine.pool import Pool
from egressd.netd.health.groups import Groups
from egressd.netd.kernel.machine_facts import FactsWatcher
from egressd.netd.kernel.nft import Nft
from egressd.netd.kernel.tc import Shaper
from egressd.netd.lines.lines import DialledLines
from egressd.netd.reconciler.plan_file import PlanFile
from egressd.planner.topology import interface_mark

ROLES: Final = InterfaceRoles(lan=("lan0",), wan=("wan1", "wan2"))
_ENGINE_UID: Final = 64_000


class Request(msgspec.Struct):
    """``apply`` with the lines and their clients; ``status``, ``release`` or ``close``."""

    do: str
    lines: dict[str, Line] = {}
    clients: dict[str, str] = {}
    """Line -> the address of its client."""
    is_fast: bool = True
    """False keeps the clients off the fast path: they have no rule to be counted by."""


class Router:
    """The parts of netd that lines need."""

    def __init__(self, run_dir: Path) -> None:
        nft = Nft()
        self._machine = KernelState(nft, ROLES, _ENGINE_UID)
        self._lines = DialledLines(
            run_dir / "lines",
            run_dir / "logins.json",
            lambda _name: self._reconciler.line_changed(),
        )
        self._pool = Pool(
            run_dir / "engine",
            Account(_ENGINE_UID, _ENGINE_UID),
            size=0,
            on_lost=lambda _: None,
            on_trouble=lambda _: None,
            mapped=self._machine.mapped_ports,
        )
        self._reconciler = compose(
            kernel=self._machine,
            limits=SpeedLimits(Shaper(nft)),
            engine=self._pool,
            lines=self._lines,
            plan_file=PlanFile(run_dir / "plan.db"),
            groups=Groups(run_dir / "groups.json"),
            publish=self._heard,
        )
        self._events: list[str] = []

    def _heard(self, news: News) -> None:
        if isinstance(news, Event):
            self._events.append(news.text)

    async def open(self) -> None:
        await self._reconciler.guard()
        await self._pool.open()
        await self._reconciler.start()
        self._watcher = await FactsWatcher(self._reconciler.refresh).__aenter__()

    async def answer(self, request: Request) -> dict[str, Any]:
        match request.do:
            case "apply":
                await self._reconciler.set_plan(self._plan(request))
            case "release":
                await self._reconciler.release()
            case "close":
                await self._reconciler.stop()
        return {
            "status": self._reconciler.line_news.lines,
            "resolvers": self._machine.peer_dns,
            "events": self._events,
        }

    def _plan(self, request: Request) -> Plan:
        known = self._reconciler.plan.egresses
        numbers = {name: known[name].number for name in request.clients if name in known}
        taken = set(numbers.values())
        free = (n for n in itertools.count(1) if n not in taken)
        numbers |= {n: next(free) for n in sorted(request.clients) if n not in numbers}
        return Plan(
            revision=self._reconciler.plan.revision + 1,
            lines=request.lines,
            egresses={name: Egress(number=n) for name, n in numbers.items()},
            hosts={request.clients[n]: interface_mark(n, number) for n, number in numbers.items()},
            limits={request.clients[n]: _limit(number) for n, number in numbers.items()}
            if request.is_fast
            else {},
        )


def _limit(number: int) -> Limit:
    return Limit(number=number, upload_kbps=0, download_kbps=0)


def serve(pipe: Connection, run_dir: Path) -> None:
    """Run the router until the pipe is closed or a signal ends it."""
    logs.configure("router")
    asyncio.run(_serve(pipe, run_dir))


async def _serve(pipe: Connection, run_dir: Path) -> None:
    router = Router(run_dir)
    await router.open()
    pipe.send_bytes(b"{}")
    readable = asyncio.Event()
    asyncio.get_running_loop().add_reader(pipe.fileno(), readable.set)
    while True:
        await readable.wait()
        while pipe.poll():
            answer = await router.answer(msgspec.json.decode(pipe.recv_bytes(), type=Request))
            pipe.send_bytes(msgspec.json.encode(answer, enc_hook=encoded))
        readable.clear()
