"""Put changes of the plan in force, each of them whole or not at all.

"Make before break":

1. start the engine instances that a change brings, and wait until they listen (a proxy service
   that keeps its port is stopped first: two cannot listen on it);
2. add the routes and policy rules that it brings;
3. change the speed limits, so that no client exceeds its rule even for a moment, and stop the
   proxy services that the change removes or moves, since the next step ends the guard of their
   ports;
4. run one nftables transaction, which moves every client at once, while the plan file's own
   transaction is open, so that both succeed or both fail;
5. remove routes, instances and files that nothing uses any more, and end the old flows of clients
   that moved.

A failure in steps 1 to 4 leads back to the old plan. Step 5 cannot take back the answer to the
request; the reconciler's next `refresh` removes what step 5 fails to remove.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress

import msgspec

from egressd.model.errors import Failed
from egressd.model.instances import Instance
from egressd.model.plan import Change, Egress, Plan
from egressd.netd.dataplane.instances import RunningInstances
from egressd.netd.engine.slot import Running
from egressd.netd.health.group_selection import GroupSelection
from egressd.netd.kernel.address_ranges import RangeMap
from egressd.netd.ports import EnginePort, KernelPort, LimitsPort, LinesPort
from egressd.netd.reconciler import change_effects
from egressd.netd.reconciler.moved_clients import MovedClients
from egressd.netd.reconciler.plan_file import PlanFile
from egressd.netd.reconciler.step import Scope, StartResult, Step, step_of
from egressd.netd.system.lenience import as_far_as_possible
from egressd.planner import local
from egressd.planner.lines.address import Taken
from egressd.planner.resolvers import asked
from egressd.planner.topology import Topology


class Applier:
    """Holds the plan in force. Callers must hold the reconciler's lock."""

    def __init__(
        self,
        *,
        kernel: KernelPort,
        limits: LimitsPort,
        engine: EnginePort,
        lines: LinesPort,
        plan_file: PlanFile,
        instances: RunningInstances,
        selection: GroupSelection,
        moved_clients: MovedClients,
    ) -> None:
        self.plan = _counted(Plan())
        self._kernel = kernel
        self._limits = limits
        self._engine = engine
        self._lines = lines
        self._plan_file = plan_file
        self._instances = instances
        self._selection = selection
        self._moved_clients = moved_clients

    def restore(self) -> None:
        """Load the stored plan, without putting it in force yet."""
        self.plan = _counted(self._plan_file.load() or Plan())
        self._moved_clients.commit(RangeMap(self.plan.nets))

    async def carry_out(self, change: Change, *, strict: bool, must_last: bool = True) -> None:
        """Put a change in force, or raise Failed and leave everything as it was.

        Without `strict` an instance that will not start blocks its own clients only; without
        `must_last` a plan file that cannot be written does not fail the change.
        """
        change = change_effects.with_epoch(change, self.plan)
        step = self._step(change, await self._start(change, strict=strict))
        choices_before = self._selection.commit(step.choices)
        self.plan.apply(change)
        ranges_before = self._moved_clients.commit(step.move.ranges)
        if step.alters_judgement:
            self._moved_clients.invalidate()
        try:
            if step.alters_routes:
                self.route(step.undo.egresses.put)
            self._kernel.prepare(self.plan, step.hosts_touched, has_networks=step.touches_networks)
            await self._change_limits(change, is_local=step.is_local, strict=strict)
            await self._instances.end_services(step.ended_services)
            with self._plan_file.writing(change, must_last=must_last):
                await self._flip(step)
        except BaseException:
            self._selection.commit(choices_before)
            self._moved_clients.commit(ranges_before)
            await self._take_back(step)
            raise
        # The change is stored and in force: the steps below cannot fail it any more.
        stale = self._instances.replace(step.started, (*step.gone, *self._selection.spare()))
        self._instances.forget(change.instances.drop)
        await self._instances.end(stale)
        if change.egresses.drop:
            with as_far_as_possible("take away the routes of egresses that are gone"):
                self.route()
        if change.lines:
            self._lines.want(self.plan.lines)
        if change.whitelist is not None:
            with as_far_as_possible("remove the files of an earlier whitelist"):
                self._engine.rule_sets.keep(self.plan.whitelist.rule_sets)
        await self._moved_clients.follow_up(step.move, step.undo.hosts.put)
        if step.is_regrouped:
            await self._moved_clients.cut(self._selection.cut_off(choices_before))
        if step.is_regrouped or change.instances:
            self._moved_clients.follow_losses()
        if change.groups:
            self._selection.follow_checks(step.undo)
        is_left = step.is_regrouped and self._selection.follow_up(choices_before)
        if is_left or change.policy is not None or change.whitelist is not None:
            self._moved_clients.end_stale_flows()

    def route(self, leaving: Mapping[str, Egress] | None = None) -> None:
        """Converge routing to the plan, and to the egresses `leaving` that are about to go."""
        egresses = {**(leaving or {}), **self.plan.egresses}
        outdated = self._lines.outdated(self.plan.lines)
        self._kernel.outdated = tuple(outdated)
        self._kernel.taken = Taken(
            lan_networks=self._kernel.topology.lan_networks,
            servers=self._lines.servers(),
            resolvers=asked(self.plan, self._kernel.peer_dns),
        )
        self._lines.reserve(self._kernel.taken)
        self._kernel.route(self.plan, egresses)

    async def load(self) -> None:
        """Load the whole nftables table. Raises Failed; the table is then unchanged."""
        await self._kernel.load(self.plan, self._instances.ports())

    def limited_lans(self) -> Topology:
        """Return the topology for speed limits: without LANs while no rule is in force, else with
        the local networks that contain clients.
        """
        topology = self._kernel.topology
        if not self.plan.policy.is_ruled:
            return msgspec.structs.replace(topology, lans=())
        return local.with_clients(topology, self._kernel.ruled_locals)

    def missing(self) -> list[Instance]:
        """Return the instances that should run and do not."""
        return self._instances.missing(self.plan)

    async def _start(self, change: Change, *, strict: bool) -> StartResult:
        """Start the instances that the change brings, and those that groups then choose.

        If this raises, everything is as before.
        """
        started: dict[str, Running] = {}
        wanted = self._instances.to_start(change)
        lan_only = [instance.port for instance in wanted if instance.lan_only]
        try:
            if change.whitelist is not None:
                self._engine.rule_sets.put(change.whitelist.rule_sets)
            if lan_only:
                await self._kernel.restrict_to_lan(lan_only)
            await self._instances.make_room(wanted)
            started = await self._instances.start(wanted, strict=strict)
            failed = {instance.key for instance in wanted} - started.keys()
            choices = await self._selection.start_chosen(change, started, failed)
            return StartResult(started, failed, choices)
        except BaseException:
            await self._instances.end(started.values())
            await self._restart_services()
            if lan_only:
                with suppress(Failed):
                    await self.load()
            raise

    async def _restart_services(self) -> None:
        """Start the proxy services again that were stopped for a change that failed."""
        gone = [instance for instance in self.missing() if instance.port]
        self._instances.replace(await self._instances.start(gone, strict=False), ())

    def _step(self, change: Change, start: StartResult) -> Step:
        """Return a change with all that follows from it. Nothing is touched."""
        return step_of(
            change,
            self.plan,
            start,
            ports=self._instances.ports(),
            move=self._moved_clients.plan_for(change),
            hosts=self._kernel.host_update(self.plan, change),
            is_regrouped=start.choices != self._selection.choices,
            is_local=self._kernel.is_about_local_clients(change),
        )

    async def _flip(self, step: Step) -> None:
        """Run the nftables transaction of a step; `self.plan` is already the new plan."""
        match step.scope:
            case Scope.TABLE:
                await self._kernel.load(self.plan, step.ports)
            case Scope.SETS:
                await self._kernel.update(self.plan, step.ports, step.hosts)
            case Scope.HOSTS:
                await self._kernel.move(self.plan, step.ports, step.hosts)

    async def _change_limits(self, change: Change, *, is_local: bool, strict: bool) -> None:
        """Change speed limits; `self.plan` is already the new plan."""
        limits, lans = self.plan.limits, self.limited_lans()
        if is_local:
            await self._limits.refresh(limits, lans)  # another network may have clients now
        await self._limits.change(change.limits, limits, lans, strict=strict)
        if change.policy is not None:
            await self._limits.refresh(limits, lans)

    async def _take_back(self, step: Step) -> None:
        """Return to the plan before a step that failed, at any point."""
        undo = step.undo
        self.plan.apply(undo)
        if undo.egresses or undo.lines or step.is_local:
            with as_far_as_possible("take back the routes"):
                self.route()
        await self._change_limits(undo, is_local=step.is_local, strict=False)
        self._moved_clients.invalidate()
        self._kernel.invalidate()  # the table is in doubt until it is loaded
        with as_far_as_possible("take back the nftables table"):
            await self.load()
        await self._instances.end(step.started.values())
        await self._restart_services()
        self._moved_clients.end_stale_flows()


def _counted(plan: Plan) -> Plan:
    """Return the plan with an epoch, which clients' flows cannot do without: the first one if the
    plan has none.
    """
    plan.whitelist = msgspec.structs.replace(plan.whitelist, epoch=plan.whitelist.epoch or 1)
    return plan
