"""The netd process: it starts the guard first, then puts the plan in force, then takes requests."""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import signal
import sys
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import structlog

from egressd.app import (
    accounts,
    config,
    heap,
    last_words,
    liveness,
    logs,
    machine_check,
    readiness,
)
from egressd.app.netd_parts import compose
from egressd.app.signals import ENDINGS
from egressd.app.single_netd import be_the_only_one
from egressd.app.supervise import when_supervisor_ends
from egressd.model.errors import EgressdError
from egressd.model.messages import Event, News
from egressd.model.pair import ROLES, PairRole
from egressd.model.plan import Plan
from egressd.netd.dataplane.kernel_state import KernelState
from egressd.netd.dataplane.speed_limits import SpeedLimits
from egressd.netd.engine.launch import Account
from egressd.netd.engine.pool import Pool
from egressd.netd.engine.reserved import ReservedPorts
from egressd.netd.engine.slot import Running
from egressd.netd.errands.gates import Gates
from egressd.netd.health.groups import Groups
from egressd.netd.health.lan_devices import LanDevices
from egressd.netd.ipc.server import Server
from egressd.netd.kernel import memory, sysctl, uapi
from egressd.netd.kernel.fast_path import ForeignFilters
from egressd.netd.kernel.machine_facts import FactsWatcher
from egressd.netd.kernel.nft import Nft
from egressd.netd.kernel.nft_events import ForeignChanges
from egressd.netd.kernel.tc import ForeignShaping, Shaper
from egressd.netd.lines.lines import DialledLines
from egressd.netd.ports import LinesPort
from egressd.netd.reconciler.client_connections import ClientConnections
from egressd.netd.reconciler.phase import Phase
from egressd.netd.reconciler.plan_file import PlanFile
from egressd.netd.reconciler.reconciler import Reconciler
from egressd.planner import bounds, sysctls
from egressd.planner.registry import ANSWER_PORT, CLEAR_LINE_PORTS, LINE_PORTS

if TYPE_CHECKING:
    from egressd.netd.cluster.gateway import PairedGateway

log = structlog.get_logger()

_LOOK_AGAIN_S = 10.0
"""Seconds between looks at the machine, in case an event was missed."""

_HANG_UP_S = 3.0
"""Seconds that lines have to hang up before the other box of a pair takes over."""


def main(path: Path | None) -> None:
    """Run until SIGTERM (stop) or SIGUSR1 (make room for a successor: the supervisor is gone)."""
    logs.configure("netd")
    heap.limit_arenas()
    if os.geteuid() != 0:
        sys.exit("netd must be started by root: it owns the kernel's tables")
    # No core file: netd's memory holds the secrets of nodes and lines.
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    settings = None
    try:
        settings = config.load(path)
        asyncio.run(liveness.proved(_serve(settings)))
    except EgressdError as error:
        log.error("netd exits after a fatal error", error=str(error))
        if settings is not None:
            last_words.leave(settings, str(error))
        sys.exit(1)


async def _serve(settings: config.Config) -> None:
    ending = _told_to_end()
    api = accounts.account(settings.api.user)
    engine = accounts.account(settings.engine.user)
    settings.run.dir.mkdir(mode=0o755, parents=True, exist_ok=True)
    nft = Nft()
    held = await be_the_only_one(settings.run.dir / "netd", nft)

    def publish(news: News) -> None:
        if isinstance(news, Event):
            log.info(news.text, topic=news.topic, subject=news.subject)
        server.publish(news)

    def on_lost(lost: Sequence[Running]) -> None:
        reconciler.lost(lost)

    def on_trouble(tags: Iterable[str]) -> None:
        reconciler.troubled(tags)

    # Each worker, including the one of proxy services, has its share of the machine's memory.
    total = memory.available()
    share = bounds.workers_memory(total, settings.engine.workers + 1)
    descriptors = _descriptors_of_workers(bounds.descriptors(share))
    limits = bounds.bounds_of(descriptors)
    kernel = KernelState(nft, settings.roles, engine.pw_uid, limits, settings.own_ports)
    pool = Pool(
        settings.run.dir / "engine",
        Account(engine.pw_uid, engine.pw_gid, descriptors, share, total // 2),
        size=settings.engine.workers,
        on_lost=on_lost,
        on_trouble=on_trouble,
        mapped=kernel.mapped_ports,
    )
    pair = await _pair_of(settings, kernel, lambda: reconciler, lambda: lines, publish)
    lines = DialledLines(
        settings.run.dir / "lines",
        settings.netd_data / "logins.json",
        lambda _name: reconciler.line_changed(),
        others=None if pair is None else pair.folder,
        may_dial=True if pair is None else None,
    )
    shaper = Shaper(nft, kernel.fast_path)
    reconciler = compose(
        kernel=kernel,
        limits=SpeedLimits(shaper),
        engine=pool,
        lines=lines,
        plan_file=PlanFile(settings.netd_data / "plan.db"),
        groups=Groups(settings.netd_data / "groups.json"),
        pair=pair,
        publish=publish,
    )
    _prepare_sysctls(settings)
    devices = LanDevices(lambda: kernel.facts, lambda: kernel.topology, publish)
    connections = ClientConnections(
        lambda: kernel.topology, kernel.fast_path.carries, kernel.keep_cut
    )
    server = Server(
        settings.netd_socket,
        api.pw_uid,
        reconciler,
        partial(machine_check.of_system, settings, is_running=True),
        devices.look_soon,
        errands=Gates(pool, partial(_user, settings.alerts.user)),
        connections=connections,
    )
    await reconciler.guard()
    readiness.announce("clients without a rule are blocked; the plan is not in force yet")
    _reserve_ports(settings, api.pw_uid)
    await asyncio.gather(pool.open(_served_targets(reconciler.plan)), reconciler.limit())
    async with contextlib.AsyncExitStack() as stack:
        # Before the start, which may take seconds: a flush meanwhile must be noticed.
        await _watch_tables(stack, reconciler, shaper, pair)
        await reconciler.start()
        # Only now: the limits of connection tracking do not exist before rules need it.
        sysctl.make_room(sysctls.room(os.sysconf("SC_PHYS_PAGES")))
        await server.open()
        last_words.withdraw(settings)
        stack.push_async_callback(server.close)
        log.info("netd ready", revision=reconciler.plan.revision, lan=kernel.topology.lans)
        readiness.describe("the plan is in force")
        heap.trim()
        await _watch_machine(stack, reconciler, kernel, shaper, devices)
        if pair is not None:
            pair.open()
        await _look_after(reconciler, server, ending)
    await _end(reconciler, lines, pair, ending.result())
    nft.close()
    held.close()


async def _watch_tables(
    stack: contextlib.AsyncExitStack,
    reconciler: Reconciler,
    shaper: Shaper,
    pair: PairedGateway | None,
) -> None:
    """Have other programs' changes of egressd's tables repaired until the stack is closed."""

    async def reload(reason: str) -> None:
        if pair is not None:
            await pair.guard_again()
        await reconciler.reload(reason)

    await stack.enter_async_context(ForeignChanges(reload))
    await stack.enter_async_context(ForeignShaping(shaper, reconciler.limit_again))
    await stack.enter_async_context(
        ForeignChanges(reconciler.limit_again, family=uapi.NFPROTO_NETDEV)
    )


async def _watch_machine(
    stack: contextlib.AsyncExitStack,
    reconciler: Reconciler,
    kernel: KernelState,
    shaper: Shaper,
    devices: LanDevices,
) -> None:
    """Have the plan adapted to changes of the machine, and the devices in its LANs reported, until
    the stack is closed.
    """
    await stack.enter_async_context(FactsWatcher(reconciler.refresh))
    await stack.enter_async_context(
        ForeignFilters(kernel.fast_path, shaper.port, reconciler.refresh)
    )
    await reconciler.refresh()  # no watcher has seen the changes since `guard` looked
    devices.start()
    stack.push_async_callback(devices.close)


async def _end(
    reconciler: Reconciler,
    lines: LinesPort,
    pair: PairedGateway | None,
    signalled: signal.Signals,
) -> None:
    """Make room for another netd, or block all clients, once the other box of a pair has them."""
    if signalled == signal.SIGUSR1:
        readiness.stopping("making room for another netd; clients are not affected")
        if pair is not None:
            await pair.release()
        await reconciler.release()
    else:
        readiness.stopping("blocking all clients")
        if pair is not None:
            # First, since a server may let an account in once only. If it takes too long it goes
            # on meanwhile: all other clients are to be handed over.
            await asyncio.wait({asyncio.create_task(lines.hang_up())}, timeout=_HANG_UP_S)
            await pair.close()
        await reconciler.stop()


async def _pair_of(
    settings: config.Config,
    kernel: KernelState,
    reconciler: Callable[[], Reconciler],
    lines: Callable[[], LinesPort],
    publish: Callable[[News], None],
) -> PairedGateway | None:
    """Return this box as one of a pair, or None if it is alone: then it leaves a former pair."""
    pair, folder = settings.pair.pair, settings.pair_folder
    if pair is None and not folder.exists():
        return None  # without the modules of a pair
    from egressd.netd.cluster import gateway

    if pair is None:
        await gateway.end_former(folder)
        return None

    def took(role: PairRole) -> None:
        text = f"this box is {ROLES[role]}"
        publish(Event(topic="pair", text=text, code=role))
        reconciler().notify()

    def may_be_active() -> bool | None:
        if kernel.lease_ms(reconciler().plan) == 0:
            return False
        is_put = reconciler().phase in (Phase.RUNNING, Phase.STOPPED, Phase.OPENED)
        return True if is_put else None

    return gateway.PairedGateway(
        pair,
        folder,
        present=lambda: {n: each.addresses for n, each in kernel.facts.interfaces.items()},
        may_be_active=may_be_active,
        is_gated=lambda: kernel.lease_ms(reconciler().plan) is not None,
        on_role=took,
        on_active=lambda is_active: lines().allow(may_dial=is_active),
        cut_flows=kernel.cut_flows,
    )


def _prepare_sysctls(settings: config.Config) -> None:
    """Keep the local ports of lines and of the engine's answers from other programs."""
    sysctl.keep_record(settings.sysctl_record)
    # A program that got one of them by chance could not send: see
    # `egressd.planner.lines.line_rules`.
    sysctl.reserve_ports((LINE_PORTS, CLEAR_LINE_PORTS, range(ANSWER_PORT, ANSWER_PORT + 1)))


def _reserve_ports(settings: config.Config, uid: int) -> None:
    """Keep the API's ports from users other than `uid`."""
    reserved = ReservedPorts(uid)
    reserved.open()
    for port in settings.own_ports:
        reserved.hold(f"api:{port}", port)


def _user(name: str) -> tuple[int, int]:
    """Return user and group id. Raises Failed if there is no such user."""
    found = accounts.account(name)
    return found.pw_uid, found.pw_gid


def _served_targets(plan: Plan) -> int:
    """Return the number of targets that instances start for with the plan."""
    return sum(not each.standby and not each.port for each in plan.instances.values())


def _descriptors_of_workers(wanted: int) -> int:
    """Return the number of files that a worker may open: `wanted`, or fewer. Workers inherit this
    process's limit.

    To exceed one's own hard limit takes a capability that netd's unit does not have.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard == resource.RLIM_INFINITY or hard >= wanted:
        return wanted
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, wanted))
    except (ValueError, PermissionError):
        return hard
    return wanted


def _told_to_end() -> asyncio.Future[signal.Signals]:
    """Return a future of the first signal that ends netd. Signals that came before count, too."""
    loop = asyncio.get_running_loop()
    ending: asyncio.Future[signal.Signals] = loop.create_future()
    for number in ENDINGS:
        loop.add_signal_handler(
            number, lambda n: None if ending.done() else ending.set_result(n), number
        )
    signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDINGS)
    when_supervisor_ends(lambda: os.kill(os.getpid(), signal.SIGUSR1))
    return ending


async def _look_after(
    reconciler: Reconciler, server: Server, ending: asyncio.Future[signal.Signals]
) -> None:
    """Check the machine and the socket regularly, and repair them, until there is an `ending`."""
    while not ending.done():
        await asyncio.wait([ending], timeout=_LOOK_AGAIN_S)
        if not ending.done():
            await reconciler.verify()
            await server.verify()
