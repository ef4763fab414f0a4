"""The reconciler: makes a plan so on this machine, and keeps it so.

One lock orders everything that touches the kernel. A change is carried out in the order
"make before break":

1. start the engine instances it brings, and wait until they listen;
2. add the routes and policy rules it brings;
3. one nftables transaction: here every client moves at once, while the plan file's own
   transaction is open, so that the two stand or fall together;
4. take away what nothing uses any more, and tidy up after clients that moved.

Up to and including 3 a failure leads back to the old plan. Step 4 cannot undo an
answer; what it fails to clean is cleaned by the next `refresh`.

What differs from the plan later (a link that comes back, a worker that died, another
program's ``nft flush ruleset``) is healed by `refresh`, `reload` and `revive`.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress

import msgspec
import structlog

from egressd.model.device import Ports
from egressd.model.errors import Failed, Invalid
from egressd.model.facts import Facts
from egressd.model.messages import Event, Status
from egressd.model.plan import Change, Instance, Plan, difference
from egressd.netd import status, validation
from egressd.netd.engine.pool import Pool, digest
from egressd.netd.engine.slot import Running
from egressd.netd.kernel import conntrack, memory, routes, sockets, sysctl
from egressd.netd.kernel import facts as machine
from egressd.netd.kernel.nft import Nft
from egressd.netd.planfile import PlanFile
from egressd.netd.tidier import Tidier, may_have
from egressd.planner import nft as script
from egressd.planner import routing
from egressd.planner.topology import Topology, discover

log = structlog.get_logger()

_REVIVE_FIRST_S = 0.2
_REVIVE_MAX_S = 30.0
"""Back-off between attempts to start an instance that should run and does not."""


class Conflict(Exception):
    """A change starts from another revision than the one in force."""


class Reconciler:
    """Owns the plan in force and everything made from it."""

    def __init__(
        self,
        *,
        nft: Nft,
        pool: Pool,
        plan_file: PlanFile,
        ports: Ports,
        engine_uid: int,
        publish: Callable[[Event], None],
    ) -> None:
        self.pool = pool
        self.plan = Plan()
        self.facts = Facts()
        self.topology = Topology()
        self.is_restored = False
        self.problems: dict[str, str] = {}
        """What could not be put in force: instance key or other subject -> why."""
        self._machine_problems: tuple[str, ...] = ()
        self._nft = nft
        self._plan_file = plan_file
        self._ports = ports
        self._engine_uid = engine_uid
        self._publish = publish
        self._lock = asyncio.Lock()
        self._serving: dict[str, Running] = {}
        self._elements: script.Elements = {}
        self._chains: str | None = None
        """The chains as nft listed them when they were loaded last."""
        self._reviving: asyncio.Task[None] | None = None
        self._tidier = Tidier(lambda client, mark: may_have(self.plan, client, mark))

    # --- Start and end. -----------------------------------------------------------------

    async def guard(self) -> None:
        """Make sure that nothing passes unruled, before anything else is done.

        A table left by an earlier netd stays as it is: its clients go on meanwhile.
        """
        async with self._lock:
            self.plan = self._plan_file.load() or Plan()
            self._look()
            self._route(self.plan)
            if self._nft.chains() is None:
                await self._load({})
            sysctl.write(routing.forwarding())

    async def start(self) -> None:
        """Put the stored plan in force; instances of living workers serve on without a gap."""
        async with self._lock:
            self._serving = self._adopted()
            await self._load()
        if missing := self._missing():
            await self.revive(missing)
        await self._end(self._leftovers())
        self.is_restored = self.plan.revision > 0

    async def stop(self) -> None:
        """Block every client, and end the engine. The guard stays."""
        async with self._lock:
            self._cancel_revival()
            await self._tidier.close()
            halted = Plan(egresses=self.plan.egresses)
            with suppress(Failed):
                await self._transact(script.load(script.elements(halted, self.topology, {})))
            self._plan_file.close()
        await self.pool.close()

    async def release(self) -> None:
        """Make room for another netd: nothing of the kernel or the engine is touched."""
        async with self._lock:
            self._cancel_revival()
            await self._tidier.close()
            self._plan_file.close()
        self.pool.release()

    # --- Changes. -----------------------------------------------------------------------

    async def set_plan(self, plan: Plan) -> None:
        """Put a whole plan in force; only what differs from the one in force is touched.

        An instance that will not start does not stand in the way of the rest: its clients
        are blocked, `problems` says why, and it is tried again.
        """
        async with self._lock:
            change = difference(self.plan, plan)
            self._check(change)
            await self._carry_out(change, strict=False)
            self.is_restored = True

    async def apply(self, change: Change) -> None:
        """Put a change in force, or raise Failed and leave everything as it was.

        Raises Invalid for a change that is not well-formed, Conflict when it does not start
        from the plan in force.
        """
        async with self._lock:
            if change.base != self.plan.revision:
                raise Conflict(f"revision {self.plan.revision} is in force, not {change.base}")
            self._check(change)
            await self._carry_out(change, strict=True)

    async def halt(self, reason: str) -> None:
        """Block every client until the next whole plan."""
        async with self._lock:
            floor = msgspec.structs.replace(self.plan.floor, stopped=True)
            revision = self.plan.revision
            await self._carry_out(
                Change(base=revision, revision=revision, floor=floor), strict=False
            )
        self._publish(Event(topic="halted", text=reason))

    async def status(self) -> Status:
        """How the device is doing."""
        networks = [network for _, network in self.topology.lan_networks]
        pids = {os.getpid(), *self.pool.pids()}
        return Status(
            state=self._state(),
            revision=self.plan.revision,
            interfaces=status.interfaces(self.facts, self.topology),
            instances=status.instances(self.plan, self._serving, self.problems),
            connections=await asyncio.to_thread(conntrack.count, networks),
            memory=await asyncio.to_thread(memory.resident, pids),
            problems=(*self.pool.problems(), *self._machine_problems),
        )

    def _state(self) -> str:
        if not self.is_restored:
            return "restoring"
        return "stopped" if self.plan.floor.stopped else "running"

    def _check(self, change: Change) -> None:
        if problems := list(validation.problems(change)):
            raise Invalid(*problems[:20])

    async def _carry_out(self, change: Change, *, strict: bool) -> None:
        before = self._serving
        started = await self._start(self._to_start(change), strict=strict)
        serving = {k: r for k, r in {**before, **started}.items() if k not in change.instances.drop}
        undo = change.inverse(self.plan)
        hosts = self._host_script(change)
        clients = _moved(change, self.plan)
        self.plan.apply(change)
        try:
            if change.egresses or change.floor is not None:
                self._route(self.plan, keep=undo)
            with self._plan_file.writing(change):
                await self._flip(serving, change, hosts)
        except BaseException:
            self.plan.apply(undo)
            if undo.egresses:
                self._route(self.plan)
            await self._end(started.values())
            raise
        self._serving = serving
        await self._tidy(before, change, clients)

    def _to_start(self, change: Change) -> list[Instance]:
        """The instances of a change that no running one serves already."""
        return [
            instance
            for key, instance in change.instances.put.items()
            if key not in self._serving or self._serving[key].digest != digest(instance)
        ]

    async def _start(self, wanted: Sequence[Instance], *, strict: bool) -> dict[str, Running]:
        results = await asyncio.gather(
            *(self.pool.start(instance) for instance in wanted), return_exceptions=True
        )
        started = {r.key: r for r in results if isinstance(r, Running)}
        for instance, result in zip(wanted, results, strict=True):
            if isinstance(result, Running):
                self.problems.pop(instance.key, None)
            elif isinstance(result, Failed) and not strict:
                self.problems[instance.key] = str(result)
            else:
                await self._end(started.values())
                assert isinstance(result, BaseException)
                raise result
        return started

    async def _end(self, running: Iterable[Running]) -> None:
        for instance in running:
            with suppress(Failed):
                await self.pool.stop(instance)

    def _host_script(self, change: Change) -> str:
        return "" if self.plan.floor.stopped else script.host_update(self.plan.hosts, change)

    async def _flip(self, serving: dict[str, Running], change: Change, hosts: str) -> None:
        """The nftables transaction of a change; the plan is already the new one."""
        if change.floor is not None:
            await self._load(serving)
            return
        touches_more = change.nets or change.instances or change.egresses or change.whitelist
        wanted = self._wanted(serving) if touches_more else {}
        text = script.update(self._elements, wanted) + hosts
        if not text:
            return
        try:
            await self._transact(text)
        except Failed:
            # The kernel's sets are not what we left there: say everything anew.
            log.warning("the sets were changed by someone else; loading all of them")
            await self._load(serving)
        else:
            self._elements.update(wanted)

    async def _tidy(
        self, before: dict[str, Running], change: Change, clients: Sequence[str]
    ) -> None:
        replaced = [
            running for key, running in before.items() if self._serving.get(key) is not running
        ]
        await self._end(replaced)
        if change.egresses.drop:
            self._route(self.plan)
        if clients:
            self._cut(clients)
        if self._missing():
            self._revive_later()

    def _cut(self, clients: Sequence[str]) -> None:
        """End what is left of moved clients' flows; `seal` has stopped them already."""
        named = set(clients)

        def is_other(address: str) -> bool:
            """Whether a host within a moved range has a rule of its own that stays."""
            return address in self.plan.hosts and address not in named

        try:
            sockets.destroy_clients(clients, self.topology.router_addresses, is_other)
        except OSError as error:
            log.warning("could not end sockets of moved clients", error=str(error))
        self._tidier.add(clients)

    # --- Healing. -----------------------------------------------------------------------

    async def refresh(self) -> None:
        """Look at the machine again and adapt: interfaces, addresses, gateways, routes."""
        async with self._lock:
            self._look()
            self._route(self.plan)
            wanted = self._wanted(self._serving)
            text = script.update(self._elements, wanted)
            if text:
                await self._transact(text)
                self._elements.update(wanted)

    async def verify(self) -> None:
        """The net beneath the events: look whether all is as it was left."""
        try:
            await self.refresh()
            async with self._lock:
                intact = await asyncio.to_thread(self._nft.chains) == self._chains
            if not intact:
                await self.reload("the chains are not as they were left")
        except Failed as error:
            log.warning("could not look after the machine", error=str(error))

    async def reload(self, reason: str) -> None:
        """Load the whole table again, after another program changed the ruleset."""
        async with self._lock:
            log.warning("loading the nftables table again", reason=reason)
            await self._load()
        self._publish(Event(topic="healed", subject="nftables", text=reason))

    def lost(self, instances: Sequence[Running]) -> None:
        """Instances died with their worker: start them again."""
        for running in instances:
            if self._serving.get(running.key) == running:
                del self._serving[running.key]
        self._publish(
            Event(topic="engine", text=f"{len(instances)} instances were lost with their worker")
        )
        self._revive_later(0)

    async def revive(self, instances: Sequence[Instance]) -> None:
        """Start instances of the plan that do not run, and let their clients through again."""
        async with self._lock:
            current = [i for i in instances if self.plan.instances.get(i.key) == i]
            started = await self._start(
                [i for i in current if i.key not in self._serving], strict=False
            )
            self._serving.update(started)
            wanted = self._wanted(self._serving)
            if text := script.update(self._elements, wanted):
                await self._transact(text)
                self._elements.update(wanted)

    def _revive_later(self, delay: float = _REVIVE_FIRST_S) -> None:
        if self._reviving is None or self._reviving.done():
            self._reviving = asyncio.create_task(self._revive_all(delay))

    async def _revive_all(self, delay: float) -> None:
        while True:
            await asyncio.sleep(delay)
            try:
                await self.revive(self._missing())
            except Failed as error:
                log.warning("could not revive instances", error=str(error))
            if not self._missing():
                return
            delay = min(max(delay, _REVIVE_FIRST_S) * 2, _REVIVE_MAX_S)

    def _cancel_revival(self) -> None:
        if self._reviving is not None:
            self._reviving.cancel()

    def _missing(self) -> list[Instance]:
        return [i for key, i in self.plan.instances.items() if key not in self._serving]

    def _adopted(self) -> dict[str, Running]:
        """Living instances that serve the plan as it is."""
        wanted = self.plan.instances
        return {
            key: running
            for key, running in self.pool.running().items()
            if key in wanted and running.digest == digest(wanted[key])
        }

    def _leftovers(self) -> list[Running]:
        """Living instances that serve nobody, left by a netd that died in the middle."""
        serving = set(self._serving.values())
        living = [*self.pool.running().values(), *self.pool.superseded()]
        return [running for running in living if running not in serving]

    # --- The kernel. --------------------------------------------------------------------

    def _look(self) -> None:
        self.facts = machine.read()
        self.topology = discover(self.facts, self._ports)

    def _route(self, plan: Plan, keep: Change | None = None) -> None:
        """Converge routes, policy rules and sysctls; `keep` names egresses not to remove yet."""
        egresses = {**(keep.egresses.put if keep else {}), **plan.egresses}
        desired = routing.desired(
            egresses,
            facts=self.facts,
            topology=self.topology,
            ports=self._ports,
            engine_uid=self._engine_uid,
        )
        settled = sysctl.write(routing.sysctls(self.topology))
        synced = routes.sync(desired.routes, desired.rules)
        self._machine_problems = (*settled.problems, *synced.problems)

    def _wanted(self, serving: dict[str, Running]) -> script.Elements:
        """All elements but the hosts', which have a path of their own."""
        ports = {key: running.port for key, running in serving.items()}
        return script.elements(self.plan, self.topology, ports, hosts=False)

    async def _load(self, serving: dict[str, Running] | None = None) -> None:
        ports = {k: r.port for k, r in (self._serving if serving is None else serving).items()}
        wanted = script.elements(self.plan, self.topology, ports)
        await self._transact(script.load(wanted))
        del wanted["hosts"]
        self._elements = wanted
        self._chains = await asyncio.to_thread(self._nft.chains)

    async def _transact(self, text: str) -> None:
        if len(text) < 4096:
            self._nft.run(text)
        else:
            await asyncio.to_thread(self._nft.run, text)


def _moved(change: Change, plan: Plan) -> list[str]:
    """Addresses and ranges whose target becomes another one."""
    hosts = [
        ip
        for ip in (*change.hosts.put, *change.hosts.drop)
        if change.hosts.put.get(ip) != plan.hosts.get(ip)
    ]
    return [*hosts, *change.nets.drop, *change.nets.put]
