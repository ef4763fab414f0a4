"""The reconciler: puts a plan in force on this machine, and keeps it in force.

One lock orders everything that touches the kernel. The `Applier` puts changes in force.

`refresh`, `reload` and `revive` repair later differences from the plan: a link that comes back, a
worker that died, another program's ``nft flush ruleset``.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Final

import msgspec
import structlog

from egressd.model.delays import Delay
from egressd.model.errors import Failed
from egressd.model.instances import Instance
from egressd.model.messages import Event, LineNews, Located, News, RuleCount, Status, StatusNews
from egressd.model.plan import Change, GlobalPolicy, Patch, Plan, difference
from egressd.model.wording import Sentence
from egressd.netd.dataplane.instances import RunningInstances
from egressd.netd.engine.protocol import ProbeDocument
from egressd.netd.engine.slot import Running
from egressd.netd.health.dns_servers import DnsServerChecks
from egressd.netd.health.group_selection import GroupSelection
from egressd.netd.health.node_failures import NodeFailures
from egressd.netd.kernel import conntrack
from egressd.netd.kernel.address_ranges import Ranges
from egressd.netd.kernel.debounce import Debouncer
from egressd.netd.lines.news import Reporter
from egressd.netd.ports import EnginePort, KernelPort, LimitsPort, LinesPort, Watcher
from egressd.netd.reconciler import validation
from egressd.netd.reconciler.applier import Applier
from egressd.netd.reconciler.moved_clients import MovedClients
from egressd.netd.reconciler.phase import Phase, phase_under
from egressd.netd.reconciler.plan_file import PlanFile
from egressd.netd.reconciler.publisher import StatusPublisher
from egressd.netd.reconciler.restarter import Restarter
from egressd.netd.reconciler.status import Monitor
from egressd.netd.system.lenience import as_far_as_possible
from egressd.planner.groups import Turn
from egressd.planner.nft import Crowd, Greedy
from egressd.planner.resolvers import usable

log = structlog.get_logger()

_AT_ONCE: Final = 64
"""Instances at most that are revived together."""
_LATER_S: Final = 0.01
"""Seconds after the end of a lease at which it is looked at."""


class Conflict(Exception):
    """Raised for a change that starts from another revision than the one in force."""


class Reconciler:
    """Owns the plan in force and all kernel, engine and line state made from it.

    `egressd.app.netd_parts.compose` makes it with its parts. `watchers` run from the end of
    `start` on.
    """

    def __init__(
        self,
        *,
        kernel: KernelPort,
        limits: LimitsPort,
        engine: EnginePort,
        lines: LinesPort,
        plan_file: PlanFile,
        applier: Applier,
        instances: RunningInstances,
        selection: GroupSelection,
        moved_clients: MovedClients,
        dns_servers: DnsServerChecks,
        node_failures: NodeFailures,
        monitor: Monitor,
        watchers: Sequence[Watcher],
        publish: Callable[[News], None],
    ) -> None:
        self.instances = instances
        self._kernel = kernel
        self._limits = limits
        self._engine = engine
        self._lines = lines
        self._plan_file = plan_file
        self._applier = applier
        self._selection = selection
        self._moved_clients = moved_clients
        self._dns_servers = dns_servers
        self._node_failures = node_failures
        self._monitor = monitor
        self._publish = publish
        self._publisher = StatusPublisher(
            lambda: monitor.view(self.plan, self.phase.reported), publish
        )
        self._watchers = (*watchers, self._publisher)
        self._line_follower: Debouncer | None = None
        self._line_reporter = Reporter(publish)
        self._restarter = Restarter(self._revive_missing, lambda: bool(applier.missing()))
        self._phase = Phase.GUARDED
        self._lock = asyncio.Lock()
        self._revived = asyncio.Event()
        self._lease_end: asyncio.TimerHandle | None = None
        self._was_open: Collection[str] = ()
        """The egresses that were open at the last `refresh`."""

    @property
    def plan(self) -> Plan:
        """The plan in force."""
        return self._applier.plan

    @property
    def phase(self) -> Phase:
        """The state of the device."""
        return phase_under(self.plan.policy) if self._phase is Phase.RUNNING else self._phase

    # --- Start and end. -----------------------------------------------------------------

    async def guard(self) -> None:
        """Make sure that no packet passes without rules, before anything else is done.

        A table left by an earlier netd stays as it is: its clients keep working meanwhile.
        """
        async with self._lock:
            self._applier.restore()
            self._kernel.load_previous()
            self._kernel.refresh()
            self._applier.route()
            if not self._kernel.has_table():
                await self._kernel.load(self.plan, {})
            self._kernel.hold_translation()
            self._kernel.forward()
            self.instances.reserve(self.plan)

    async def limit(self) -> None:
        """Put the stored plan's speed limits in force, before `start` lets clients through."""
        async with self._lock:
            await self._limits.sync(self.plan.limits, self._applier.limited_lans())

    async def start(self) -> None:
        """Put the stored plan in force; instances of living workers keep serving without a gap."""
        async with self._lock:
            self._engine.rule_sets.put(self.plan.whitelist.rule_sets)
            self.instances.adopt(self.plan)
            self._selection.restore()
            await self._lines.find()
            self._applier.route()
            self._phase = Phase.RESTORING
            self._kernel.peer_dns = usable(self._lines.resolvers(), self._kernel.topology)
            await self._applier.load()
            self._moved_clients.follow_losses()
            self._moved_clients.end_stale_flows()
        # Both run at once: the engine may take long, and so may lines that end.
        await asyncio.gather(self._revive_missing(), self._open_lines())
        # Another program may have removed limits or counters after `limit`, before netd watched
        # the kernel's events.
        await self.limit()
        await self.instances.end(self.instances.leftovers())
        self._retry_missing()
        if self._phase is Phase.RESTORING and self.plan.revision > 0:
            self._phase = Phase.RUNNING
        for watcher in self._watchers:
            watcher.start()
        self._follow_lease()

    async def _open_lines(self) -> None:
        self._line_follower = Debouncer(self._follow_lines)
        await self._lines.open()
        await self._lines.apply(self.plan.lines)

    async def stop(self) -> None:
        """Block every client, and end the engine and the lines. The guard stays.

        Raises Failed, after all other steps, if clients could not be blocked.
        """
        async with self._lock:
            await self._quiesce()
            # The clients stay in the plan: without them their counters would be removed.
            blocked = Plan(
                policy=GlobalPolicy(stopped=True, is_leased=self.plan.is_leased),
                egresses=self.plan.egresses,
                instances=self.plan.instances,
                hosts=self.plan.hosts,
                limits=self.plan.limits,
            )
            failure = None
            try:
                await self._kernel.load(blocked, {})
            except Failed as error:
                failure = error
            lans = Ranges(str(network) for _, network in self._kernel.topology.lan_networks)
            with as_far_as_possible("end what far ends send to clients"):
                await asyncio.to_thread(conntrack.forget_datagrams, lans)
        await asyncio.gather(self._engine.close(), self._lines.close())
        if failure is not None:
            raise failure

    async def release(self) -> None:
        """Let another netd take over: kernel, engine and lines stay as they are."""
        async with self._lock:
            await self._quiesce()
        await self._lines.release()
        self._engine.release()

    async def _quiesce(self) -> None:
        self._phase = Phase.ENDING
        self._restarter.close()
        if self._lease_end is not None:
            self._lease_end.cancel()
        if self._line_follower is not None:
            await self._line_follower.close()
        for watcher in self._watchers:
            await watcher.close()
        await self._moved_clients.close()
        self._limits.close()
        self._plan_file.close()

    # --- Changes. -----------------------------------------------------------------------

    async def set_plan(self, plan: Plan) -> int:
        """Put a whole plan in force; only differences from the plan in force are touched. Return
        the epoch of its whitelist.

        An instance that will not start does not fail the rest: its clients are blocked, `status`
        gives the reason, and it is tried again.
        """
        async with self._turn((*self.plan.instances, *plan.instances)):
            change = difference(self.plan, plan)
            validation.check(change, self.plan)
            await self._carry_out(change, strict=False)
            self._phase = Phase.RUNNING
            return self.plan.whitelist.epoch

    async def apply(self, change: Change, *, is_strict: bool = True) -> None:
        """Put a change in force, or raise Failed and leave everything as it was.

        Without `is_strict` an instance that will not start fails nothing else, as in `set_plan`.
        Raises Invalid for a malformed change, Conflict for a change that does not start from the
        plan in force.
        """
        async with self._turn((*change.instances.put, *change.instances.drop)):
            if change.base != self.plan.revision:
                raise Conflict(f"revision {self.plan.revision} is in force, not {change.base}")
            validation.check(change, self.plan)
            await self._carry_out(change, strict=is_strict)

    async def halt(self, reason: str) -> None:
        """Block every client, including those of proxy services, until the next whole plan."""
        async with self._ordered():
            policy = msgspec.structs.replace(self.plan.policy, stopped=True)
            services = [each for each in self.plan.instances.values() if each.port]
            dropped = tuple(each.key for each in services)
            revision = self.plan.revision
            change = Change(
                base=revision, revision=revision, policy=policy, instances=Patch(drop=dropped)
            )
            # The disk may be the reason for the halt: clients are blocked even if it is full.
            await self._carry_out(change, strict=False, must_last=False)
            # A service that is being revived is ended once it listens; until then its port is
            # closed to callers.
            if reviving := [each.port for each in services if each.key in self.instances.reviving]:
                with as_far_as_possible("guard the ports of services that are being revived"):
                    await self._kernel.restrict_to_lan(reviving)
        self._publish(Event(topic="halted", text=reason, code="halted"))

    async def renew_lease(self, until_ms: int) -> None:
        """Let clients through until then, in milliseconds of CLOCK_BOOTTIME, if they need a lease.

        It waits for no change that is under way. Raises Invalid, Failed.
        """
        if self._phase is Phase.ENDING:
            raise Failed("renew the lease", "netd is ending")
        was_over = self._kernel.lease_ms(self.plan) == 0
        await self._kernel.renew_lease(until_ms, self.plan)
        if was_over:
            log.info("clients are let through: the lease is renewed")
            self.notify()
        self._follow_lease()

    def _follow_lease(self) -> None:
        """Report the end of the lease when it comes."""
        if self._lease_end is not None:
            self._lease_end.cancel()
            self._lease_end = None
        if left_ms := self._kernel.lease_ms(self.plan):
            loop = asyncio.get_running_loop()
            self._lease_end = loop.call_later(left_ms / 1000 + _LATER_S, self._lease_ended)

    def _lease_ended(self) -> None:
        self._lease_end = None
        if self._kernel.lease_ms(self.plan) == 0:
            log.warning("clients are blocked: the lease was not renewed")
            self.notify()

    async def status(self) -> Status:
        """Return the status of the device."""
        return await self._monitor.status(self.plan, self.phase.reported)

    async def counters(self) -> dict[int, RuleCount]:
        """Return the traffic of each enabled rule by id, at most a second old. Raises Failed."""
        return await self._monitor.counters()

    async def try_configs(self, configs: Sequence[str]) -> list[Sentence]:
        """For each of `configs` return the reason why the engine refuses it; empty if it does not.

        Raises Failed.
        """
        return await self._engine.try_configs(configs)

    async def delays(
        self, probes: Sequence[ProbeDocument], url: str, timeout_ms: int
    ) -> dict[str, Delay]:
        """Return the delay of each probe. Raises Invalid, Failed."""
        return await self._engine.delays(probes, url, timeout_ms)

    async def locate(self, client: str) -> Located:
        """Return where the kernel sends a client's new flows. Raises Invalid, Failed."""
        return Located(await self._kernel.locate(client), self._kernel.members(client))

    async def _carry_out(self, change: Change, *, strict: bool, must_last: bool = True) -> None:
        # A start lets clients through again even if a proxy service will not start.
        policy = change.policy
        is_start = self.plan.policy.stopped and policy is not None and not policy.stopped
        try:
            await self._applier.carry_out(
                change, strict=strict and not is_start, must_last=must_last
            )
        finally:
            self._retry_missing()
            self.notify()

    def _retry_missing(self) -> None:
        if self._applier.missing():
            self._restarter.retry_later()

    @property
    def status_news(self) -> StatusNews:
        """The status of the device, as sent to connections that watch."""
        return self._publisher.news

    def _open_ways(self) -> frozenset[str]:
        egress_problems = self._kernel.egress_problems(self.plan)
        return frozenset(name for name, why in egress_problems.items() if not why)

    def notify(self) -> None:
        """Report an event that may change the status."""
        self._publisher.notify()

    # --- Lines. -------------------------------------------------------------------------

    def line_changed(self) -> None:
        """Handle a line that came up or went down, or whose peer hands out another resolver."""
        if self._line_follower is not None:
            self._line_follower.notify()

    @property
    def line_news(self) -> LineNews:
        """The status of each line when its routes were last updated."""
        return self._line_reporter.latest

    async def _follow_lines(self) -> None:
        """Let clients through by lines that are up, and publish the lines' status."""
        await self.refresh()
        self._line_reporter.report(self._lines.status())

    # --- Healing. -----------------------------------------------------------------------

    async def refresh(self) -> None:
        """Read the machine's state and adapt: interfaces, addresses, gateways, routes, lines."""
        async with self._ordered():
            own = self._kernel.line_addresses()
            self._kernel.refresh()
            self._kernel.peer_dns = usable(self._lines.resolvers(), self._kernel.topology)
            self._applier.route()
            await self._kernel.update(self.plan, self.instances.ports())
            self._moved_clients.follow_losses()
            self._kernel.forward()
            await self._limits.refresh(self.plan.limits, self._applier.limited_lans())
        await self._selection.follow_routes()
        if self._was_open != (is_open := self._open_ways()):
            self._was_open = is_open
            self._dns_servers.check_soon()
        self.notify()
        with as_far_as_possible("remove flows to addresses that lines had"):
            for address in own.difference(self._kernel.topology.router_addresses):
                await asyncio.to_thread(conntrack.forget_own, address)

    async def verify(self) -> None:
        """Check that the machine is as netd left it, in case an event was missed."""
        try:
            await self.refresh()
            async with self._ordered():
                intact = await self._kernel.is_intact()
            if not intact:
                await self.reload("the chains are not as they were left")
        except (Failed, OSError) as error:
            log.warning("cannot verify the kernel state", error=str(error))

    async def reload(self, reason: str) -> None:
        """Load the whole table again, after another program changed the ruleset."""
        async with self._ordered():
            if not self._phase.is_loaded:
                return  # `start` is about to load it
            log.warning("reloading the nftables table", reason=reason)
            await self._applier.load()
            await self._limits.sync(self.plan.limits, self._applier.limited_lans())
        self._publish(Event(topic="healed", subject="nftables", text=reason, code="healed"))

    async def limit_again(self, reason: str) -> None:
        """Repair the speed limits, after another program touched the kernel's part of them."""
        async with self._ordered():
            is_healed = await self._limits.sync(self.plan.limits, self._applier.limited_lans())
        if is_healed:
            self._publish(Event(topic="healed", subject="limits", text=reason, code="healed"))

    async def revive(self, instances: Sequence[Instance]) -> None:
        """Start instances of the plan that do not run, and let their clients through again.

        The engine may take ten seconds and more: only changes of these instances wait meanwhile.
        """
        async with self._turn(instance.key for instance in instances):
            wanted = [
                instance
                for instance in instances
                if self.plan.instances.get(instance.key) == instance
                and self.instances.get(instance.key) is None
            ]
            await self.instances.make_room(wanted)
            keys = {instance.key for instance in wanted}
            self.instances.reviving |= keys
        try:
            started = await self.instances.start(wanted, strict=False)
            async with self._ordered():
                # A halt does not wait for a revival: it may have taken some out of the plan.
                gone = {key for key in started if key not in self.plan.instances}
                await self.instances.end([started.pop(key) for key in gone])
                self.instances.forget(gone)
                self.instances.replace(started, ())
                await self._kernel.update(self.plan, self.instances.ports())
                self._moved_clients.follow_losses()
        finally:
            self.instances.reviving -= keys
            self._revived.set()
            self.notify()

    @asynccontextmanager
    async def _ordered(self) -> AsyncIterator[None]:
        """Hold the lock, for work that must not follow a `stop` or a `release`. Raises Failed after
        one of these.
        """
        async with self._lock:
            if self._phase is Phase.ENDING:
                raise Failed("do any more", "netd is ending")
            yield

    @asynccontextmanager
    async def _turn(self, keys: Iterable[str]) -> AsyncIterator[None]:
        """Hold the lock, once none of these instances is being revived."""
        concerned = set(keys)
        while True:
            async with self._ordered():
                if not concerned & self.instances.reviving:
                    yield
                    return
                self._revived.clear()
            await self._revived.wait()

    async def regroup(self) -> None:
        """Send groups' clients to the best nodes by the present measurements."""
        async with self._ordered():
            if not self._selection.is_settled:
                revision = self.plan.revision
                await self._carry_out(Change(base=revision, revision=revision), strict=False)
        self.notify()

    async def rotate(self, turns: Mapping[str, Turn]) -> dict[str, dict[str, str]]:
        """Give clients of groups other members, by the groups' keys. Return the clients that have
        another one, with it. Raises Failed.
        """
        async with self._ordered():
            before, revision = self._selection.choices, self.plan.revision
            with self._selection.turning(turns):
                await self._carry_out(Change(base=revision, revision=revision), strict=False)
            found = {}
            for name in turns:
                old = before[name].kept if name in before else {}
                now = self._selection.choices[name].kept if name in self._selection.choices else {}
                found[name] = {client: key for client, key in now.items() if old.get(client) != key}
        await self._selection.save()  # no later netd is to send them back
        return found

    async def refuse_clients(self, greedy: Collection[Greedy]) -> None:
        """Accept no further flows of these clients."""
        async with self._ordered():
            self._kernel.greedy = greedy
            await self._kernel.update(self.plan, self.instances.ports())

    async def refuse_callers(self, crowd: Crowd) -> None:
        """Let proxy services accept no further connections of these callers."""
        async with self._ordered():
            self._kernel.crowd = crowd
            await self._kernel.update(self.plan, self.instances.ports())

    def troubled(self, tags: Iterable[str]) -> None:
        """Have the nodes of these outbounds checked: clients' connections through them fail."""
        self._selection.suspect(tags)
        self._node_failures.suspect(tags)

    def lost(self, instances: Sequence[Running]) -> None:
        """Start instances again that died with their worker."""
        self.instances.lose(instances)
        text = f"{len(instances)} instances were lost with their worker"
        self._publish(
            Event(topic="engine", text=text, code="lost", values={"instances": len(instances)})
        )
        self.notify()
        self._restarter.retry_now()

    async def _revive_missing(self) -> None:
        """Revive missing instances in parts, so that none waits until the last of many listens."""
        missing = self._applier.missing()
        parts = [missing[at : at + _AT_ONCE] for at in range(0, len(missing), _AT_ONCE)]
        done = await asyncio.gather(*map(self.revive, parts), return_exceptions=True)
        for each in done:
            if isinstance(each, BaseException):
                raise each
