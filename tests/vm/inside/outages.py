"""Twelve lines of all kinds through outages at random, and many at once: how soon they are back.

``python -m tests.vm.inside.outages SHARED SECONDS [SCENARIO...]``. A figure is the longest time
from the moment in which a server could be had again until a client had an answer.
"""

from __future__ import annotations

import asyncio
import random
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator
from contextlib import AsyncExitStack, contextmanager, suppress
from functools import wraps
from pathlib import Path
from statistics import median
from typing import Final

from egressd.model.nouns import Line
from tests.vm.inside import network
from tests.vm.inside.access_server import ADDRESS
from tests.vm.inside.failures import is_dialled_anew
from tests.vm.inside.many import cpu_s
from tests.vm.inside.netns import sh
from tests.vm.inside.network import PASSWORD, SECRET, SERVERS, WANS, pool
from tests.vm.inside.oddities import (
    ACCOUNT,
    FREED_S,
    OTHERS,
    RETURN_S,
    OddSuite,
    opened,
    ruled,
)
from tests.vm.inside.ppp_peer import Habits
from tests.vm.inside.suite import BLOCK_S, leaders

HELD_S: Final = 30.0
"""For so long the odd server holds a session that fell silent."""
RENEWED_S: Final = 45
"""After so long the other servers renew the keys of lines."""
OUTAGE_S: Final = (1.0, 60.0)
PAUSE_S: Final = (2.0, 20.0)
WAN_PAUSE_S: Final = (120.0, 240.0)
PACE_S: Final = 0.5
PATIENCE: Final = 4
"""Multiples of its limit for which a late line is waited for, which then shows how late it is."""
COMPARED: Final = 20
"""The same where releases that are slower are measured, too."""
LENGTH_S: Final = 30.0
"""Seconds of each outage of `lines_come_back`."""
MANY: Final = 48
MANY_S: Final = 20.0
CUT_S: Final = 15.0
GOOD: Final = 56
FAILING: Final = 200
FAILING_S: Final = 90.0

SEED: Final = 20261126

LINES: Final = {
    # server: of each line its kind, its WAN, and whether it has a secret
    "s1": (("l2tp", "wan1", False), ("l2tp", "wan2", True), ("pptp", "wan1", False),
           ("pptp", "wan2", False)),
    "s2": (("l2tp", "wan2", False), ("l2tp", "wan1", True), ("l2tp", "wan1", True),
           ("pptp", "wan2", False)),
    "odd": (("l2tp", "wan1", False), ("l2tp", "wan2", False), ("l2tp", "wan1", False),
            ("l2tp", "wan2", False)),
}  # fmt: skip
PLACES: Final = {**SERVERS, "odd": ADDRESS}


ACCOUNTS: Final = {
    server: {f"user{n}": f"{pool(server)}.{n + 10}" for n in range(GOOD // 2)} for server in SERVERS
}
"""The users of each server, with the address of each: as many as any scenario needs."""


class Outages:
    """Failures of one server; `suite` has its lines up."""

    def __init__(
        self, suite: OddSuite, server: str, names: Collection[str], patience: float = PATIENCE
    ) -> None:
        self.suite = suite
        self.server = server
        self.names = names
        self.turn = asyncio.Lock()
        """Held from the begin of an outage until all lines are back."""
        self._patience = patience
        self.took: defaultdict[str, list[float]] = defaultdict(list)
        """Cause -> how long each line took to be back."""
        self._chance = random.Random(f"{SEED} {server}")

    async def happen(self, until: float) -> None:
        """Have one after the other, until a moment."""
        while time.monotonic() < until:
            await asyncio.sleep(self._chance.uniform(*PAUSE_S))
            await self.have(self._chance.choice(self.causes()), self._chance.uniform(*OUTAGE_S))

    def causes(self) -> tuple[Cause, ...]:
        """Return all that may happen to this server."""
        last = self.account_is_held if self.server == "odd" else self.ports_are_closed
        return (self.path_is_cut, self.server_is_gone, self.sessions_end, last)

    async def have(self, cause: Cause, outage_s: float) -> None:
        """Have one outage, and wait until all lines are back."""
        async with self.turn:
            freed = await cause(outage_s)
            most = FREED_S if cause == self.account_is_held else RETURN_S
            await asyncio.gather(
                *(self._is_back(n, cause.__name__, freed, most) for n in self.names)
            )

    async def _is_back(self, name: str, cause: str, freed: float, most: float) -> None:
        with suppress(TimeoutError):
            await self.suite.clients[name].answered(self._patience * most)
        took = time.monotonic() - freed
        kind = "L2TP/IPsec" if self.suite.lines[name].secret else self.suite.lines[name].type
        self.took[f"{cause}, {kind}"].append(took)
        if took > most:
            status = (await self.suite.statuses())[name]
            print(f"LATE {name} {cause} {took:.1f} {status}\n{self.suite.logs(name)}", flush=True)

    # --- Causes: each returns when the server could be had again. ----------------------------

    async def path_is_cut(self, outage_s: float) -> float:
        with self._cut():
            await asyncio.sleep(outage_s)
        return time.monotonic()

    @contextmanager
    def _cut(self) -> Iterator[None]:
        address = PLACES[self.server]
        with ruled("isp", "forward", f"ip daddr {address} drop", f"ip saddr {address} drop"):
            yield

    async def server_is_gone(self, outage_s: float) -> float:
        if self.server == "odd":
            self.suite.server.stop()
            await asyncio.sleep(outage_s)
            self.suite.server.start()
            return time.monotonic()
        await asyncio.to_thread(network.stop_server, self.server)
        await asyncio.sleep(outage_s)
        began = time.monotonic()  # xl2tpd and pptpd answer long before charon does
        await asyncio.to_thread(network.start_server, self.server, ACCOUNTS[self.server])
        await asyncio.to_thread(network.take, self.server, renewed_s=RENEWED_S)
        return began

    async def ports_are_closed(self, outage_s: float) -> float:
        with ruled(
            self.server,
            "input",
            "udp dport { 500, 1701, 4500 } reject",
            "tcp dport 1723 reject with tcp reset",
            "ip protocol gre drop",
        ):
            await asyncio.sleep(outage_s)
        return time.monotonic()

    async def sessions_end(self, outage_s: float) -> float:
        ended = time.monotonic()
        if self.server == "odd":
            for peer in self.suite.server.peers:
                peer.end(b"Goodbye")
        else:
            sh(
                f"for pid in $(ip netns pids {self.server}); do "
                'if [ "$(cat /proc/$pid/comm)" = pppd ]; then kill $pid; fi; done'
            )
        await asyncio.sleep(1)  # until it is noticed
        return ended

    async def account_is_held(self, outage_s: float) -> float:
        cut = time.monotonic()
        self.suite.server.habits = Habits(hold_s=HELD_S)
        with self._cut():  # the line dials again while the server still holds its session
            await asyncio.sleep(min(outage_s, HELD_S / 2))
        freed = cut + HELD_S
        await asyncio.sleep(freed - time.monotonic())
        self.suite.server.habits = Habits()
        return freed


def has_address(interface: str, address: str) -> bool:
    """True if the interface has that IPv4 address."""
    return f"inet {address}/" in sh(f"ip -4 address show dev {interface}")


class WanChanges(Outages):
    """Changes of a WAN's address. No server has an outage meanwhile."""

    def __init__(
        self, suite: OddSuite, wan: str, names: Collection[str], servers: Iterable[Outages]
    ) -> None:
        super().__init__(suite, wan, names)
        addresses = [WANS[wan], f"{WANS[wan].rpartition('.')[0]}.77"]
        # A scenario before this one may have changed it.
        self._addresses = addresses if has_address(wan, addresses[0]) else addresses[::-1]
        self._servers = tuple(servers)

    async def happen(self, until: float) -> None:
        while time.monotonic() < until:
            await asyncio.sleep(self._chance.uniform(*WAN_PAUSE_S))
            async with AsyncExitStack() as turns:
                for each in self._servers:
                    await turns.enter_async_context(each.turn)
                await self.have(self.wan_changes, 0)

    async def wan_changes(self, outage_s: float) -> float:
        """Give the WAN its other address. The old one goes first and last in turns."""
        gone, here = self._addresses
        before = leaders(self.names)
        changed = time.monotonic()
        await asyncio.to_thread(
            network.readdress, self.server, gone, here, is_lapsed=gone == WANS[self.server]
        )
        for name in self.names:
            while not is_dialled_anew(name, before[name]):
                assert time.monotonic() - changed < BLOCK_S, f"{name} is still as it was"
                await asyncio.sleep(0.05)
        self._addresses.reverse()
        return changed


Cause = Callable[[float], Awaitable[float]]


async def lines_outlast_outages(suite: OddSuite, seconds: float) -> None:
    """No line is down for long after its server can be had."""
    outages: list[Outages] = []
    by_wan: defaultdict[str, list[str]] = defaultdict(list)
    for server in SERVERS:
        network.take(server, renewed_s=RENEWED_S)
    for server, lines in LINES.items():
        names = []
        accounts = (ACCOUNT, *OTHERS) if server == "odd" else ACCOUNTS[server]
        for username, (kind, wan, has_secret) in zip(accounts, lines, strict=False):
            names.append(
                await suite.dial(
                    kind,
                    server=PLACES[server],
                    username=username,
                    interface=wan,
                    secret=SECRET if has_secret else "",
                )
            )
            by_wan[wan].append(names[-1])
        outages.append(Outages(suite, server, names))
    outages += [WanChanges(suite, wan, names, tuple(outages)) for wan, names in by_wan.items()]
    for client in suite.clients.values():
        client.pace(PACE_S)
    await suite.online()
    until = time.monotonic() + seconds
    await asyncio.gather(*(each.happen(until) for each in outages))
    late = _measured(suite, outages)
    assert not late, late
    await suite.drop_all()
    for server in SERVERS:
        network.take(server)


def _measured(suite: OddSuite, outages: Iterable[Outages]) -> list[str]:
    """Note how soon lines were back, by cause and kind; return what took too long."""
    late = []
    every: Counter[str] = Counter()
    found: defaultdict[str, list[float]] = defaultdict(list)
    for each in outages:
        for cause, took in each.took.items():
            found[cause] += took
            every[cause] += len(took)
            most = FREED_S if cause.startswith("account") else RETURN_S
            late += [f"{cause}: {one:.1f} s" for one in took if one > most]
    for cause, took in sorted(found.items()):
        suite.figures |= {
            f"{cause}: count": float(every[cause]),
            f"{cause}: median": median(took),
            f"{cause}: longest": max(took),
        }
    return late


async def lines_come_back(suite: OddSuite, seconds: float) -> None:
    """A line of each kind is back soon, from each cause, after outages of one length."""
    names = [
        await suite.dial(kind, server=SERVERS["s1"], username=user, secret=secret)
        for user, kind, secret in (
            ("user0", "l2tp", ""),
            ("user1", "l2tp", SECRET),
            ("user2", "pptp", ""),
        )
    ]
    odd = await suite.dial()
    for client in suite.clients.values():
        client.pace(PACE_S / 5)
    await suite.online()
    servers = [
        Outages(suite, server, mine, COMPARED) for server, mine in (("s1", names), ("odd", [odd]))
    ]
    wan = WanChanges(suite, "wan1", (*names, odd), ())
    for causes in zip(*(each.causes() for each in servers), strict=True):
        await asyncio.gather(
            *(each.have(cause, LENGTH_S) for each, cause in zip(servers, causes, strict=True))
        )
    await wan.have(wan.wan_changes, 0)
    late = _measured(suite, (*servers, wan))
    assert not late, late
    await suite.drop_all()


async def _many(suite: OddSuite, count: int) -> list[str]:
    """Have so many lines of all kinds online, over both WANs, to both servers."""
    names = []
    for n in range(count):
        server = "s1" if n % 2 else "s2"
        kind = "pptp" if n % 4 == 3 else "l2tp"
        has_secret = n % 4 == 2
        names.append(
            await suite.dial(
                kind,
                server=SERVERS[server],
                username=f"user{n // 2}",
                interface="wan1" if n % 8 < 4 else "wan2",
                secret=SECRET if has_secret else "",
            )
        )
        suite.clients[names[-1]].pace(1.0)
    await suite.online()
    return names


async def many_lines_come_back(suite: OddSuite, seconds: float) -> None:
    """Forty-eight lines are lost at once, and are back soon after the path is."""
    names = await _many(suite, MANY)
    with ruled("isp", "forward", "drop"):
        await asyncio.sleep(CUT_S)
    back = time.monotonic()
    took = []

    async def is_back(name: str) -> None:
        await suite.clients[name].answered(4 * MANY_S)
        took.append(time.monotonic() - back)

    await asyncio.gather(*map(is_back, names))
    suite.figures |= {"first back": min(took), "median": median(took), "last back": max(took)}
    assert max(took) < MANY_S
    await suite.drop_all()


async def most_lines_fail(suite: OddSuite, seconds: float) -> None:
    """A server refuses 200 of 256 lines, again and again: the others do not notice."""
    names = await _many(suite, GOOD)
    suite.server.habits = Habits(call_refusal=(2, 4, b"Not on Sundays"))
    failing = {
        f"l2tp_f{n}": Line(
            id=1000 + n,
            type="l2tp",
            name=f"l2tp_f{n}",
            server=ADDRESS,
            port=1701,
            username=ACCOUNT,
            password=PASSWORD,
            interface="wan1" if n % 2 else "wan2",
        )
        for n in range(FAILING)
    }
    others = suite.bystanders()
    before = leaders(names)
    refused = suite.server.turned_away
    busy = cpu_s([suite.router.pid or 0])
    began = time.monotonic()
    await suite.apply(**failing)
    applied = time.monotonic() - began
    told: set[str] = set()
    slowest = 0.0
    while time.monotonic() - began < FAILING_S:
        asked = time.monotonic()
        statuses = await suite.statuses()
        slowest = max(slowest, time.monotonic() - asked)
        told |= {n for n in failing if n in statuses and "Not on Sundays" in statuses[n].reason}
        if len(told) == FAILING:
            suite.figures.setdefault("all told", time.monotonic() - began)
        await asyncio.sleep(1)
    took = time.monotonic() - began
    assert len(told) == FAILING, f"only {len(told)} were told"
    assert leaders(names) == before, "a line that was up was dialled anew"
    suite.figures |= {
        "applied": applied,
        "longest silence of others": others.check(),
        "slowest answer of netd": slowest,
        "calls a second": (suite.server.turned_away - refused) / took,
        "share of a processor for netd": (cpu_s([suite.router.pid or 0]) - busy) / took,
    }
    await suite.drop_all()


Scenario = Callable[[OddSuite, float], Awaitable[None]]
SCENARIOS: Final[tuple[Scenario, ...]] = (
    lines_come_back,
    lines_outlast_outages,
    many_lines_come_back,
    most_lines_fail,
)


def _lasting(scenario: Scenario, seconds: float) -> Callable[[OddSuite], Awaitable[None]]:
    """Return the scenario with its length, by its own name."""

    @wraps(scenario)
    async def run(suite: OddSuite) -> None:
        await scenario(suite, seconds)

    return run


async def main(shared: Path, seconds: float, chosen: Collection[str]) -> None:
    suite = await opened(shared, ACCOUNTS)
    for scenario in SCENARIOS:
        name = scenario.__name__
        if not chosen or name in chosen:
            await suite.run(_lasting(scenario, seconds))
            suite.server.reset()
    (shared / "done").touch()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), float(sys.argv[2]), sys.argv[3:]))
