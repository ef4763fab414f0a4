"""32 lines after a cold start: the time they take, and their cost."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final

from egressd.model.nouns import Line
from egressd.netd.system.daemon_group import kill_all, members
from tests.vm.inside import network
from tests.vm.inside.netns import sh
from tests.vm.inside.network import PASSWORD, SECRET, SERVERS, Account, pool
from tests.vm.inside.probes import Client
from tests.vm.inside.suite import RUN_DIR, Suite

MANY: Final = 32
ALL_ONLINE_S: Final = 60.0
_TICKS_A_SECOND: Final = os.sysconf("SC_CLK_TCK")
_HALF: Final = MANY // 2


async def many_lines_start(suite: Suite) -> None:
    """Start netd with 32 lines in its plan file and no running daemon, as after a boot."""
    kept, clients = dict(suite.lines), dict(suite.clients)
    lines = {line.name: line for line in map(_line, range(MANY))}
    for server in SERVERS:
        mine = [line for line in lines.values() if line.server == SERVERS[server]]
        accounts = [Account(one.username, PASSWORD, _address(server, one)) for one in mine]
        await asyncio.to_thread(network.let_in, server, accounts, SECRET)
    suite.lines = lines
    fresh = {line.name: Client(f"10.77.0.{100 + line.id}") for line in lines.values()}
    suite.clients = clients | fresh  # the former clients' lines are gone, so they are blocked
    await suite.apply()
    await _switch_off(suite)

    idle = _idle_s()
    began = time.monotonic()
    await suite.start_router()
    suite.figures["netd started"] = time.monotonic() - began
    pending = set(lines)
    while pending:
        statuses = await suite.statuses()
        for name in [name for name in pending if name in statuses and statuses[name].is_online]:
            pending.remove(name)
            suite.figures.setdefault("first online", time.monotonic() - began)
        left = {name: statuses.get(name) for name in pending}
        assert time.monotonic() - began < ALL_ONLINE_S, f"not online: {left}"
        await asyncio.sleep(0.1)
    took = suite.figures["all online"] = time.monotonic() - began
    suite.figures["busy of all, servers too"] = took - (_idle_s() - idle)
    daemons = set().union(*(members(folder) for folder in (RUN_DIR / "units").iterdir()))
    for who, pids in (("daemons", daemons), ("charon", members(RUN_DIR / "charon"))):
        suite.figures |= {f"CPU of {who}": cpu_s(pids), f"MB of {who}": _megabytes(pids)}
    suite.figures["CPU of netd"] = cpu_s([suite.router.pid or 0])

    for client in fresh.values():
        client.start()
    for line in lines.values():
        await fresh[line.name].answered(10)
        server = next(name for name in SERVERS if SERVERS[name] == line.server)
        assert fresh[line.name].seen_since(0) == {_address(server, line)}, line
    for client in fresh.values():
        client.close()
    suite.clients = clients
    await suite.take_back(kept)


def _line(n: int) -> Line:
    """Return a line: half are L2TP, a quarter L2TP with a secret, a quarter PPTP; over both WANs,
    to both servers.
    """
    kind = "pptp" if n % 4 == 3 else "l2tp"
    return Line(
        id=n + 1,
        type=kind,
        name=f"{kind}_m{n}",
        server=SERVERS["s1" if n < _HALF else "s2"],
        port=1723 if kind == "pptp" else 1701,
        username=f"m{n}",
        password=PASSWORD,
        secret=SECRET if n % 4 == 2 else "",
        interface="wan1" if n % 8 < 4 else "wan2",
    )


def _address(server: str, line: Line) -> str:
    return f"{pool(server)}.{50 + line.id}"


async def _switch_off(suite: Suite) -> None:
    """End the lines as a reboot does. The guard stays, since a boot would load it first."""
    await suite.end_router(signal.SIGKILL)
    folders = [*(RUN_DIR / "units").iterdir(), RUN_DIR / "charon"]
    for folder in folders:
        await kill_all(folder)
    sh(f"rm -r {RUN_DIR}; ip xfrm state flush; ip xfrm policy flush")
    suite.orphans = set()
    await asyncio.sleep(1)  # links end with their processes
    assert not re.search(r"(l2tp|pptp)_", sh("ip -o link")), "a line outlived its processes"


def cpu_s(pids: Iterable[int]) -> float:
    """Return the seconds of CPU of these processes, and of their ended children."""
    ticks = 0
    for pid in pids:
        with suppress(OSError):  # it has ended
            told = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            ticks += sum(map(int, told[11:15]))
    return ticks / _TICKS_A_SECOND


def _megabytes(pids: Iterable[int]) -> float:
    """Return their memory in MB; shared memory counts once (PSS, proc_pid_smaps(5))."""
    kilobytes = 0
    for pid in pids:
        with suppress(OSError):
            told = Path(f"/proc/{pid}/smaps_rollup").read_text()
            kilobytes += sum(map(int, re.findall(r"^Pss: +(\d+)", told, re.MULTILINE)))
    return kilobytes / 1024


def _idle_s() -> float:
    """Return the seconds that the processor was idle (proc_uptime(5))."""
    return float(Path("/proc/uptime").read_text().split()[1])
