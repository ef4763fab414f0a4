"""The netd process: the guard first, then the plan, then whoever asks."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import resource
import signal
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import BinaryIO

import structlog

from egressd.app import accounts, config, logs, readiness
from egressd.app.supervise import when_keeper_ends
from egressd.model.errors import EgressdError, Failed
from egressd.model.messages import Event, LineNews
from egressd.netd.engine.pool import Pool
from egressd.netd.engine.slot import Running
from egressd.netd.groups import Groups
from egressd.netd.kernel import sysctl
from egressd.netd.kernel.facts import Watcher
from egressd.netd.kernel.nft import Nft
from egressd.netd.kernel.nft_events import NETDEV, ForeignChanges
from egressd.netd.kernel.shaping import ForeignShaping, Shaper
from egressd.netd.limits import Limits
from egressd.netd.lines.lines import Lines
from egressd.netd.machine import Machine
from egressd.netd.planfile import PlanFile
from egressd.netd.reconciler import Reconciler
from egressd.netd.server import Server
from egressd.planner import sysctls

log = structlog.get_logger()

_LOOK_AGAIN_S = 10.0
"""Seconds between looks at a machine that says nothing: a net beneath the events."""


_PREDECESSOR_S = 20.0
"""Seconds that an earlier netd has to be gone."""


def main(path: Path | None) -> None:
    """Run until SIGTERM (stop) or SIGUSR1 (make room for a successor, as when its keeper dies)."""
    logs.configure("netd")
    if os.geteuid() != 0:
        sys.exit("netd must be started by root: it owns the kernel's tables")
    # Its memory holds the secrets of nodes and lines: no core file.
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    try:
        asyncio.run(_serve(config.load(path)))
    except EgressdError as error:
        log.error("netd cannot go on", error=str(error))
        sys.exit(1)


async def _serve(settings: config.Config) -> None:
    api = accounts.account(settings.api.user)
    engine = accounts.account(settings.engine.user)
    settings.run.dir.mkdir(mode=0o755, parents=True, exist_ok=True)
    lock = await _be_the_only_one(settings.run.dir / "netd.lock")

    def publish(news: Event | LineNews) -> None:
        if isinstance(news, Event):
            log.info(news.text, topic=news.topic, subject=news.subject)
        server.publish(news)

    def on_lost(lost: Sequence[Running]) -> None:
        reconciler.lost(lost)

    def on_trouble(tags: Iterable[str]) -> None:
        reconciler.troubled(tags)

    nft = Nft()
    machine = Machine(nft, settings.ports, engine.pw_uid)
    pool = Pool(
        settings.run.dir / "engine",
        uid=engine.pw_uid,
        gid=engine.pw_gid,
        size=settings.engine.workers,
        on_lost=on_lost,
        on_trouble=on_trouble,
        mapped=machine.mapped_ports,
    )
    shaper = Shaper(nft)
    reconciler = Reconciler(
        machine=machine,
        limits=Limits(shaper),
        pool=pool,
        lines=Lines(settings.run.dir / "lines", lambda _name: reconciler.line_changed()),
        plan_file=PlanFile(settings.netd_data / "plan.db"),
        groups=Groups(settings.netd_data / "groups.json"),
        publish=publish,
    )
    server = Server(settings.netd_socket, api.pw_uid, reconciler)
    await reconciler.guard()
    readiness.announce()
    await asyncio.gather(pool.open(), reconciler.limit())
    await reconciler.start()
    # Only now: connection tracking has no limits before there are rules that need it.
    sysctl.make_room(sysctls.room(os.sysconf("SC_PHYS_PAGES")))
    await server.open()
    log.info(
        "netd is ready", revision=reconciler.plan.revision, lan=reconciler.machine.topology.lans
    )
    async with contextlib.AsyncExitStack() as stack:
        stack.push_async_callback(server.close)
        await stack.enter_async_context(Watcher(reconciler.refresh))
        await reconciler.refresh()  # what changed since guard looked, which nobody watched
        await stack.enter_async_context(ForeignChanges(reconciler.reload))
        await stack.enter_async_context(ForeignShaping(shaper, reconciler.limit_again))
        await stack.enter_async_context(ForeignChanges(reconciler.limit_again, family=NETDEV))
        ending = await _look_after(reconciler, server)
    if ending == signal.SIGUSR1:
        await reconciler.release()
    else:
        await reconciler.stop()
    lock.close()


async def _be_the_only_one(path: Path) -> BinaryIO:
    """Wait until no other netd holds the lock, and hold it while the file is open.

    Two would each take the other for a foreign program, and heal what it does. Raises Failed.
    """
    file = path.open("ab")
    loop = asyncio.get_running_loop()
    deadline = loop.time() + _PREDECESSOR_S
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if loop.time() > deadline:
                file.close()
                raise Failed("start netd", f"another one holds {path}") from None
            await asyncio.sleep(0.02)
        else:
            return file


async def _look_after(reconciler: Reconciler, server: Server) -> signal.Signals:
    """Keep the machine as it should be until a signal says to end; which one."""
    loop = asyncio.get_running_loop()
    ending: asyncio.Future[signal.Signals] = loop.create_future()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1):
        loop.add_signal_handler(
            number, lambda n: None if ending.done() else ending.set_result(n), number
        )
    when_keeper_ends(lambda: os.kill(os.getpid(), signal.SIGUSR1))
    while not ending.done():
        await asyncio.wait([ending], timeout=_LOOK_AGAIN_S)
        if not ending.done():
            await reconciler.verify()
            await server.verify()
    return ending.result()
