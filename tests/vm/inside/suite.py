"""The scenarios, one after another in one VM. Each gets a verdict in ``results.json``."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
import socket
import sys
import time
import traceback
from collections.abc import Awaitable, Callable, Collection
from pathlib import Path
from typing import Any, Final

import msgspec

from egressd.model.messages import LineStatus
from egressd.model.nouns import Line
from egressd.planner.registry import LINE_PORTS
from tests.vm.inside import netns, network, router
from tests.vm.inside.netns import sh
from tests.vm.inside.network import DNS, PASSWORD, SECRET, SERVERS, WANS, pool
from tests.vm.inside.probes import Client, Tap, Web

_PROCESSES: Final = multiprocessing.get_context("forkserver")
"""The router is forked, again and again, from a process that has loaded all of it: under an
emulated processor that alone takes long."""

ROUTER: Final = Path("/run/router")
RUN_DIR: Final = ROUTER / "lines"

_PLACES: Final = {
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
"""Four to each server, mixed kinds, over both WANs: d and e are two with a secret from one
address to one server, a pair of PPTP likewise."""

ONLINE_S: Final = 90.0
BLOCK_S: Final = 20.0


class Verdict(msgspec.Struct):
    """How a scenario went. ``figures`` are seconds unless their name says otherwise."""

    problem: str
    took_s: float
    figures: dict[str, float]


class Suite:
    """The state that scenarios share."""

    def __init__(self, shared: Path) -> None:
        self.shared = shared
        self.verdicts: dict[str, Verdict] = {}
        self.figures: dict[str, float] = {}
        self.lines = {name: _line(n, name) for n, name in enumerate(_PLACES, 1)}
        self.clients = {
            name: Client(f"10.77.0.{line.id + 10}") for name, line in self.lines.items()
        }
        self.taps = {wan: Tap(f"r{wan[-1]}") for wan in WANS}

    # --- The router's process. --------------------------------------------------------------

    async def start_router(self) -> None:
        self._pipe, end = _PROCESSES.Pipe()
        self.router = _PROCESSES.Process(target=router.serve, args=(end, ROUTER), daemon=True)
        self.router.start()
        end.close()
        await self._answer()

    async def end_router(self, number: signal.Signals) -> None:
        assert self.router.pid is not None
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
            request |= {"lines": self.lines, "clients": clients}
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
        return msgspec.convert(answer["status"], dict[str, LineStatus])

    async def until(
        self, name: str, condition: Callable[[LineStatus], bool], timeout_s: float
    ) -> LineStatus:
        """Wait until a line's status is so."""
        deadline = time.monotonic() + timeout_s
        while True:
            status = (await self.statuses()).get(name)  # netd may not have told of it yet
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

    # --- Verdicts. --------------------------------------------------------------------------

    async def run(self, scenario: Callable[[Suite], Awaitable[None]]) -> None:
        name = scenario.__name__
        self.figures = {}
        began = time.monotonic()
        problem = ""
        try:
            await scenario(self)
            self._nothing_leaked()
        except Exception:
            problem = traceback.format_exc()
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
        """The clients of all lines but these, to see that nothing happens to them."""
        return Bystanders(
            [c for n, c in self.clients.items() if n in self.lines and n not in names]
        )


class Bystanders:
    """Clients whose lines nothing happens to."""

    def __init__(self, clients: list[Client]) -> None:
        self._clients = clients
        self._since = time.monotonic()
        self._resets = sum(client.resets for client in clients)

    def check(self, most_s: float = 2.5) -> float:
        """No connection of theirs ended, nor was one silent for long; the longest silence."""
        resets = sum(client.resets for client in self._clients) - self._resets
        assert resets == 0, f"{resets} connections of other lines were reset"
        gap = max(client.gap_since(self._since) for client in self._clients)
        assert gap < most_s, f"another line was silent for {gap:.1f} s"
        return gap


def _line(number: int, name: str) -> Line:
    server, has_secret, interface = _PLACES[name]
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


def _users(server: str) -> dict[str, str]:
    return {
        name: f"{pool(server)}.{number + 10}"
        for number, (name, place) in enumerate(_PLACES.items(), 1)
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


def _has_state(state: str, status: LineStatus) -> bool:
    return status.state == state


# --- The scenarios, in order. ---------------------------------------------------------------


async def the_taps_see(suite: Suite) -> None:
    """The positive control: what must not be seen is seen when it is there."""
    clear = netns.udp("s1", SERVERS["s1"], LINE_PORTS.start)
    for wan, address in WANS.items():
        clear.sendto(b"x", (address, 9))
        sh(f"ip route replace {network.WEB} dev {wan} via 10.{wan[-1]}.0.1")
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as bare:
            bare.sendto(b"x", (network.WEB, 9))
    sh(f"ip route delete {network.WEB}")
    await asyncio.sleep(1)
    for wan, tap in suite.taps.items():
        assert tap.bare, f"the tap on {wan} is blind for clients' packets"
        assert tap.clear, f"the tap on {wan} is blind for clear L2TP"
        tap.bare.clear()
        tap.clear.clear()


async def all_come_online(suite: Suite) -> None:
    """Eight lines at once; the web server sees each client by its own line's address."""
    began = time.monotonic()
    await suite.start_router()
    await suite.apply()
    for name in suite.lines:
        await suite.until(name, lambda status: status.is_online, ONLINE_S)
        suite.figures[f"{name} online after"] = time.monotonic() - began
    await suite.online()
    since = time.monotonic()
    await asyncio.sleep(1.5)
    statuses = await suite.statuses()
    resolvers = (await suite.ask("status"))["resolvers"]
    for name, line in suite.lines.items():
        server = _PLACES[name][0]
        expected = _users(server)[name]
        assert statuses[name].ip == expected, f"{name}: {statuses[name]}"
        assert suite.clients[name].seen_since(since) == {expected}, name
        assert resolvers[name] == DNS[server], f"{name}: {resolvers[name]}"
        assert line.password not in repr(statuses[name])


async def secrets_stay_secret(suite: Suite) -> None:
    """No secret in a command line, an environment, a log, or a file that others may read."""
    wanted = [text.encode() for text in (PASSWORD, SECRET)]
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            for file in ("cmdline", "environ"):
                try:
                    content = (entry / file).read_bytes()
                except OSError:
                    continue
                assert not any(secret in content for secret in wanted), f"{entry}/{file}"
    for path in RUN_DIR.rglob("*"):
        mode = path.lstat().st_mode & 0o777
        if path.is_dir():
            assert mode & 0o077 == 0, f"{path} is open to others"
        if path.is_file() and path.name != "options":
            content = path.read_bytes()
            assert not any(secret in content for secret in wanted), path
    options = list(RUN_DIR.rglob("options"))
    assert len(options) == len(suite.lines)
    assert all(path.stat().st_mode & 0o777 == 0o600 for path in options)


async def edits_that_daemons_do_not_see(suite: Suite) -> None:
    """A comment or DNS edit dials nothing."""
    others = suite.bystanders()
    before = leaders(suite.lines)
    await suite.apply(
        l2tp_a=replaced(suite.lines["l2tp_a"], comment="new"),
        pptp_a=replaced(suite.lines["pptp_a"], dns_profile="custom", dns_servers=("1.1.1.1",)),
    )
    await asyncio.sleep(1)
    assert leaders(suite.lines) == before
    suite.figures["longest silence"] = others.check()


async def a_rename_follows(suite: Suite) -> None:
    """A renamed line comes back under its new name, and nobody else notices."""
    others = suite.bystanders("l2tp_f")
    began = time.monotonic()
    line, client = suite.lines["l2tp_f"], suite.clients.pop("l2tp_f")
    suite.clients["l2tp_new_name_x"] = client
    await suite.apply(l2tp_f=None, l2tp_new_name_x=replaced(line, name="l2tp_new_name_x"))
    await suite.online(["l2tp_new_name_x"])
    assert "l2tp_f:" not in sh("ip -o link"), "the old name is still there"
    suite.figures["back"] = time.monotonic() - began
    suite.figures["longest silence"] = others.check()
    suite.clients["l2tp_f"] = suite.clients.pop("l2tp_new_name_x")
    await suite.apply(l2tp_new_name_x=None, l2tp_f=line)
    await suite.online(["l2tp_f"])


async def netd_is_killed(suite: Suite) -> None:
    """kill -9 of the supervisor: lines carry on, and the next one finds them as they are."""
    others = suite.bystanders()
    before = leaders(suite.lines)
    await suite.end_router(signal.SIGKILL)
    await asyncio.sleep(2)
    await suite.start_router()
    for name in suite.lines:
        await suite.until(name, lambda status: status.is_online, 3)
    assert leaders(suite.lines) == before, "a line was dialled anew"
    assert (await suite.ask("status"))["resolvers"].keys() == suite.lines.keys()
    await suite.apply()
    assert leaders(suite.lines) == before, "a line was dialled anew"
    suite.figures["longest silence"] = others.check()


async def netd_is_replaced(suite: Suite) -> None:
    """A release and a new start, with one line changed in between."""
    others = suite.bystanders("l2tp_b")
    before = leaders(suite.lines)
    await suite.ask("release")
    await suite.end_router(signal.SIGTERM)
    await suite.start_router()
    await suite.apply(l2tp_b=replaced(suite.lines["l2tp_b"], interface="wan1"))
    await suite.online(["l2tp_b"])
    after = leaders(suite.lines)
    assert {n for n in after if after[n] != before[n]} == {"l2tp_b"}
    suite.figures["longest silence"] = others.check()
    await suite.apply(l2tp_b=replaced(suite.lines["l2tp_b"], interface="wan2"))
    await suite.online(["l2tp_b"])


SCENARIOS: Final = (
    the_taps_see,
    all_come_online,
    secrets_stay_secret,
    edits_that_daemons_do_not_see,
    a_rename_follows,
    netd_is_killed,
    netd_is_replaced,
)


async def main(shared: Path) -> None:
    _PROCESSES.set_forkserver_preload(["tests.vm.inside.router"])
    network.build()
    await asyncio.gather(
        *(asyncio.to_thread(network.start_server, name, _users(name)) for name in SERVERS)
    )
    suite = Suite(shared)
    for tap in suite.taps.values():
        tap.start()
    await Web().open()
    for client in suite.clients.values():
        client.start()
    for scenario in SCENARIOS:
        await suite.run(scenario)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
