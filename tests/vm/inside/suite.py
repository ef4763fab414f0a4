"""The state shared by scenarios: lines, clients, the router, and verdicts in ``results.json``."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import re
import signal
import time
import traceback
from collections.abc import Awaitable, Callable, Collection
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final, Self

import msgspec

from egressd.model.messages import LineStatus
from egressd.model.nouns import Line
from egressd.model.wording import decoded
from tests.vm.inside import network
from tests.vm.inside.netns import sh
from tests.vm.inside.network import PASSWORD, SECRET, SERVERS, WANS, Account, pool
from tests.vm.inside.probes import Client, Tap

PROCESSES: Final = multiprocessing.get_context("forkserver")
"""The router is forked repeatedly from a process that has loaded all modules: under an emulated
processor loading them takes long.
"""

ROUTER: Final = Path("/run/router")
RUN_DIR: Final = ROUTER / "lines"

PLACES: Final = {
    # name: server, has a secret, interface
    "l2tp_a": ("s1", False, "auto"),
    "l2tp_b": ("s2", False, "wan2"),
    "l2tp_c": ("s1", True, "wan2"),
    "l2tp_d": ("s2", True, "auto"),
    "l2tp_e": ("s2", True, "wan1"),
    "l2tp_f": ("s2", False, "wan2"),
    "pptp_a": ("s1", False, "wan2"),
    "pptp_b": ("s1", False, "wan2"),
}
"""Each server has four of mixed kinds, over both WANs. d and e are two with a secret from one
address to one server, a pair of PPTP likewise.
"""

ONLINE_S: Final = 90.0
BLOCK_S: Final = 20.0


class Verdict(msgspec.Struct):
    """The result of a scenario. ``figures`` are seconds unless their name says otherwise."""

    problem: str
    took_s: float
    figures: dict[str, float]


class Suite:
    """The state that scenarios share."""

    def __init__(self, shared: Path, lines: dict[str, Line] | None = None) -> None:
        self.shared = shared
        self.verdicts: dict[str, Verdict] = {}
        self.figures: dict[str, float] = {}
        self._asking = asyncio.Lock()
        self.is_fast = True
        """False keeps the lines' clients off the fast path from the next change on."""
        self.orphans: set[str] = set()
        """Keys that a killed charon left in the kernel, where they expire."""
        every = {name: _line(n, name) for n, name in enumerate(PLACES, 1)}
        self.lines = every if lines is None else lines
        self.clients = {
            name: Client(f"10.77.0.{line.id + 10}") for name, line in self.lines.items()
        }
        self.taps = {wan: Tap(f"r{wan[-1]}") for wan in WANS}

    # --- The router's process. --------------------------------------------------------------

    async def start_router(self) -> None:
        self._pipe, end = PROCESSES.Pipe()
        self.router = PROCESSES.Process(target=_route, args=(end,), daemon=True)
        self.router.start()
        end.close()
        await self._answer()

    async def end_router(self, number: signal.Signals) -> None:
        assert self.router.pid is not None
        with suppress(ProcessLookupError):  # it may have ended by itself
            os.kill(self.router.pid, number)
        await asyncio.to_thread(self.router.join)

    async def _answer(self) -> dict[str, Any]:
        if not await asyncio.to_thread(self._pipe.poll, 90):
            raise TimeoutError("the router does not answer")
        return dict(msgspec.json.decode(self._pipe.recv_bytes()))

    async def ask(self, do: str) -> dict[str, Any]:
        request: dict[str, Any] = {"do": do}
        if do == "apply":
            clients = {name: self.clients[name].address for name in self.clients}
            request |= {"lines": self.lines, "clients": clients, "is_fast": self.is_fast}
        async with self._asking:
            self._pipe.send_bytes(msgspec.json.encode(request))
            return await self._answer()

    async def apply(self, **changes: Line | None) -> None:
        """Change some lines, and leave the others as they are."""
        for name, line in changes.items():
            if line is None:
                del self.lines[name]
            else:
                self.lines[name] = line
        await self.ask("apply")

    async def statuses(self) -> dict[str, LineStatus]:
        answer = await self.ask("status")
        return msgspec.convert(answer["status"], dict[str, LineStatus], dec_hook=decoded)

    async def until(
        self, name: str, condition: Callable[[LineStatus], bool], timeout_s: float
    ) -> LineStatus:
        """Wait until a line's status meets the condition."""
        deadline = time.monotonic() + timeout_s
        while True:
            status = (await self.statuses()).get(name)  # netd may not have reported it yet
            if status is not None and condition(status):
                return status
            if time.monotonic() > deadline:
                raise AssertionError(f"{name} is still {status}")
            await asyncio.sleep(0.2)

    async def online(self, names: Collection[str] | None = None) -> None:
        """Wait until the lines are online and their clients have answers."""
        for name in self.lines if names is None else names:
            await self.until(name, lambda status: status.is_online, ONLINE_S)
            await self.clients[name].answered(10)

    async def take_back(self, lines: dict[str, Line]) -> None:
        """Restore the servers' first accounts, and these lines."""
        for server in SERVERS:
            accounts = [Account(name, PASSWORD, ip) for name, ip in users(server).items()]
            await asyncio.to_thread(network.let_in, server, accounts, SECRET)
        self.lines = lines
        await self.ask("apply")
        await self.online()

    # --- Verdicts. --------------------------------------------------------------------------

    async def run(self, scenario: Callable[[Self], Awaitable[None]]) -> None:
        name = scenario.__name__
        self.figures = {}
        began = time.monotonic()
        problem = ""
        try:
            await scenario(self)
            self._nothing_leaked()
        except Exception:
            problem = traceback.format_exc()
            with suppress(OSError, EOFError):  # the router may be what failed
                problem += f"{await self.statuses()}"
            self._keep_logs(name)
        took = round(time.monotonic() - began, 2)
        figures = {key: round(value, 2) for key, value in self.figures.items()}
        self.verdicts[name] = Verdict(problem, took, figures)
        print(f"{name}: {'FAILED' if problem else 'ok'} in {took} s {figures}", flush=True)
        if problem:
            print(problem, flush=True)
        new = self.shared / "results.json.new"
        new.write_bytes(msgspec.json.encode(self.verdicts))
        new.rename(self.shared / "results.json")

    def _nothing_leaked(self) -> None:
        for wan, tap in self.taps.items():
            assert not tap.bare, f"{len(tap.bare)} client packets on {wan} outside of any line"
            assert not tap.clear, f"{len(tap.clear)} L2TP packets in clear on {wan}"

    def _keep_logs(self, name: str) -> None:
        sh(
            f"mkdir -p {self.shared}/{name}; "
            f"cp -r {RUN_DIR} {network.RUN} {self.shared}/{name}/ 2>/dev/null || true"
        )

    def bystanders(self, *names: str) -> Bystanders:
        """Return the clients of all lines but these, to check that they are not affected."""
        return Bystanders(
            [c for n, c in self.clients.items() if n in self.lines and n not in names]
        )


class Bystanders:
    """Clients whose lines must not be affected."""

    def __init__(self, clients: list[Client]) -> None:
        self._clients = clients
        self._since = time.monotonic()
        self._resets = sum(client.resets for client in clients)

    def check(self, most_s: float = 2.5) -> float:
        """Assert that none of their connections ended or was silent for long, and return the
        longest silence.
        """
        resets = sum(client.resets for client in self._clients) - self._resets
        assert resets == 0, f"{resets} connections of other lines were reset"
        gap = max(client.gap_since(self._since) for client in self._clients)
        assert gap < most_s, f"another line was silent for {gap:.1f} s"
        return gap


def _route(pipe: Connection) -> None:
    from tests.vm.inside import router  # only the forkserver needs it

    router.serve(pipe, ROUTER)


def _line(number: int, name: str) -> Line:
    server, has_secret, interface = PLACES[name]
    kind = name.partition("_")[0]
    return Line(
        id=number,
        type=kind,
        name=name,
        server=SERVERS[server],
        port=1701 if kind == "l2tp" else 1723,
        username=name,
        password=PASSWORD,
        secret=SECRET if has_secret else "",
        interface=interface,
    )


def users(server: str) -> dict[str, str]:
    return {
        name: f"{pool(server)}.{number + 10}"
        for number, (name, place) in enumerate(PLACES.items(), 1)
        if place[0] == server
    }


def replaced(line: Line, **changes: Any) -> Line:
    return msgspec.structs.replace(line, **changes)


def leader(name: str) -> int:
    record = msgspec.json.decode((RUN_DIR / "units" / name / "unit.json").read_bytes())
    return int(record["pid"])


def local_port(name: str) -> int:
    record = msgspec.json.decode((RUN_DIR / "units" / name / "unit.json").read_bytes())
    return int(record["note"]["local_port"])


def leaders(names: Collection[str]) -> dict[str, int]:
    return {name: leader(name) for name in names}


def spis() -> set[str]:
    """The numbers (SPI) of the router's IPsec associations, one a direction."""
    return set(re.findall(r"spi (0x[0-9a-f]+)", sh("ip xfrm state")))


def has_state(state: str, status: LineStatus) -> bool:
    return status.state == state
