"""Documents and pools for the engine's tests, which run real workers in a namespace."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator, Callable, Collection, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from egressd.netd.engine import launch
from egressd.netd.engine.document import Document
from egressd.netd.engine.pool import Pool
from egressd.netd.engine.slot import Running

OnLost = Callable[[list[Running]], None]
OnTrouble = Callable[[Iterable[str]], None]

UID = 64_123
GID = 64_124
ACCOUNT = launch.Account(UID, GID)
MARK = 0x3000_0000

Entry = dict[str, Any]


def document(outbound: Entry, **rest: Any) -> str:
    """Return a sing-box document that sends everything to `outbound`."""
    entries = {"log": {"level": "error"}, "outbounds": [{"tag": "node", **outbound}]}
    return json.dumps(entries | {"route": {"final": "node"}} | rest)


def target(key: str, outbound: Entry | None = None, **rest: Any) -> Document:
    """Return an instance for clients, as the planner makes them."""
    tproxy = {"type": "tproxy", "listen": "127.0.0.1", "listen_port": 0}
    node = outbound or {"type": "socks", "server": "127.0.0.1", "server_port": 9}
    return Document(key=key, config=document(node, inbounds=[tproxy], **rest))


def service(key: str, inbound: Entry) -> Document:
    """Return an instance with the given listener that connects directly."""
    config = document({"type": "direct"}, inbounds=[inbound])
    return Document(key=key, config=config, is_service=True)


CRASHES = {"experimental": {"debug": {"max_stack": 1}}}
"""Part of a document that ends the process: the Go runtime is allowed a stack of one byte."""
STACK_IS_FULL = r"stack( overflow| exceeds|=\[)"
"""Error text in that case. If two of its threads crash at once, their output is mixed."""


def unheard(_: object) -> None:
    """Ignore a loss or trouble that does not matter to the test."""


@asynccontextmanager
async def opened(
    run_dir: Path,
    size: int = 1,
    on_lost: OnLost = unheard,
    on_trouble: OnTrouble = unheard,
    mapped: Callable[[], Collection[int]] = tuple,
    account: launch.Account = ACCOUNT,
) -> AsyncIterator[Pool]:
    """Yield a pool that is closed at the end."""
    pool = Pool(run_dir, account, size, on_lost=on_lost, on_trouble=on_trouble, mapped=mapped)
    await pool.open()
    try:
        yield pool
    finally:
        await pool.close()


async def accepts(port: int) -> bool:
    """Return whether a program listens on that loopback port, even if it hangs up at once."""
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
    except ConnectionRefusedError:
        return False
    except ConnectionResetError:
        return True
    writer.transport.abort()
    return True


def descriptors(pid: int) -> int:
    """Return the number of files that a process has open."""
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


def living_workers(run_dir: Path) -> list[tuple[int, int]]:
    """Return pids and pidfds of the workers that live in `run_dir`."""
    found = (launch.holder(lock.with_suffix(".sock")) for lock in run_dir.glob("*.lock"))
    return [holder for holder in found if holder is not None]


def worker_pids(run_dir: Path) -> list[int]:
    """Return the pids of the workers that live in `run_dir`."""
    found = living_workers(run_dir)
    for _, pidfd in found:
        os.close(pidfd)
    return [pid for pid, _ in found]


def end_workers(run_dir: Path) -> None:
    """Kill the workers that a failed test left in `run_dir`."""
    for _, pidfd in living_workers(run_dir):
        signal.pidfd_send_signal(pidfd, signal.SIGKILL)
        os.close(pidfd)


def is_stopped(pid: int) -> bool:
    """Return whether all threads of a process are stopped (proc_pid_stat(5), field 3).

    After SIGSTOP they continue until one of them, which waits for its turn, has taken the signal.
    """
    stats = [file.read_text() for file in Path(f"/proc/{pid}/task").glob("*/stat")]
    return all(stat.rpartition(")")[2].split()[0] == "T" for stat in stats)
