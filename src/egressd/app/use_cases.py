"""The use cases, wired with their dependencies."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from egressd.api.services import Services
from egressd.app import network
from egressd.app.background import Background
from egressd.app.records import Records
from egressd.license.licensing import Licensing
from egressd.model.desired import DesiredState
from egressd.model.device import Resolvers
from egressd.model.findings import MachineFinding
from egressd.model.instances import NodePath
from egressd.model.messages import Event
from egressd.model.nouns import Node
from egressd.model.site import MemberState
from egressd.model.wording import Sentence
from egressd.planner.change import plan_change
from egressd.planner.compile import compile_plan
from egressd.planner.probes import node_path
from egressd.service.alert_checks import inner_problems
from egressd.service.alerts import Alerts
from egressd.service.backups import Backups
from egressd.service.bindings import Bindings
from egressd.service.connections import Connections
from egressd.service.devices import Devices
from egressd.service.exits import ExitPolicy, Exits
from egressd.service.groups import TargetGroups
from egressd.service.history import History
from egressd.service.journal import Journal
from egressd.service.judge import Judge, Notice
from egressd.service.ledger import Ledger
from egressd.service.lines import Lines
from egressd.service.machine_check import MachineCheck
from egressd.service.nodes import Nodes
from egressd.service.overview import Overviews, TimedBackups
from egressd.service.parts import PartStates
from egressd.service.ports import (
    Clock,
    Configuration,
    LeaseSource,
    Netd,
    SitePort,
    VendorSource,
)
from egressd.service.proxy_services import ProxyServices
from egressd.service.restored import RestoreChecks
from egressd.service.rotations import Rotations
from egressd.service.route_probe import Why
from egressd.service.rules import Rules
from egressd.service.servers import Around
from egressd.service.settings import DeviceSettings
from egressd.service.subscriptions import Subscriptions
from egressd.service.system import System
from egressd.service.tokens import Tokens
from egressd.service.trials import ChangeTrials
from egressd.service.undo import Undo
from egressd.service.whitelist import DeviceWhitelist


class UseCases:
    """All use cases of the device, over one store and one netd."""

    def __init__(
        self,
        store: Configuration,
        netd: Netd,
        *,
        resolvers: Callable[[], Resolvers],
        clock: Clock,
        licensing: Licensing,
        own_ports: Mapping[int, str],
        around: Around,
        records: Records,
        folder: Path,
        publish: Callable[[Event], None],
        notify: Callable[[Notice], None],
        own_problems: Callable[[], Iterable[Sentence]],
        timed_backups: Callable[[], TimedBackups | None],
        own_findings: Callable[[], Sequence[MachineFinding]],
        exit_policy: ExitPolicy,
        vendors: VendorSource,
        leases: LeaseSource,
        alert_problems: Callable[[], Iterable[Sentence]],
        host: str,
        change_took: Callable[[float], None],
        site: SitePort | None = None,
        members: Callable[[], Sequence[MemberState]] = tuple,
        is_standby: Callable[[], bool] = lambda: False,
    ) -> None:
        """`change_took` is called with the seconds of each accepted change. `site`: this device as
        a member of a site, whose `members` are known; None for a device of its own.
        `is_standby` returns True while it is the standby box of a pair.
        """

        def is_leased() -> bool:
            return site is not None and site.is_leased

        def has_line_dns() -> bool:
            return licensing.grants().line_dns

        def allowed() -> Resolvers:
            return msgspec.structs.replace(resolvers(), has_line_dns=has_line_dns())

        def dialled_by(state: DesiredState, node: Node) -> NodePath | None:
            return node_path(state, node, allowed())

        self.resolvers = allowed
        """Returns the resolvers that the plan is made with at the moment."""
        started = time.monotonic()
        self.ledger = ledger = Ledger(
            store,
            netd,
            compile_plan=lambda state: compile_plan(state, allowed(), is_leased=is_leased()),
            plan_change=lambda before, after, edits: plan_change(
                before, after, edits, allowed(), is_leased=is_leased()
            ),
            site=site,
            took=change_took,
            clock=clock,
        )
        self.judge = judge = Judge(lambda: ledger.state, allowed, notify, clock)
        system = System(
            ledger,
            netd,
            uptime_s=lambda: time.monotonic() - started,
            own_memory=_resident,
            has_api_access=lambda: licensing.refusal() is None,
        )

        exits = Exits(
            ledger,
            netd,
            allowed,
            clock=clock,
            policy=exit_policy,
            record=records.exits,
            notify=notify,
        )
        recorder = History(
            netd,
            records.history,
            rules=lambda: ledger.state.rules,
            parts=PartStates(lambda: ledger.state, exits.take_delays),
            now=time.time,
        )
        journal = Journal(records.changes, publish)
        devices = Devices(
            ledger,
            records.devices,
            vendors=vendors,
            leases=leases,
            now=time.time,
            notify=notify,
            bindings=Bindings(ledger, clock, note=journal.note, is_standby=is_standby),
        )

        subscriptions = Subscriptions(
            ledger,
            netd,
            allowed,
            store=records.subscriptions,
            clock=clock,
            around=around,
            notify=notify,
            note=journal.note,
        )
        alerts = Alerts(
            ledger,
            netd,
            allowed,
            record=records.alerts,
            clock=clock,
            problems=lambda: (*alert_problems(), *subscriptions.problems()),
            inner=lambda url: inner_problems(url, around()),
            host=host,
        )

        def quota() -> int:
            return licensing.grants().proxy_service_quota

        restore_checks = RestoreChecks(own_ports, listening=network.listening_ports, around=around)
        trials = ChangeTrials(ledger, store, journal, now=time.time, is_shared=site is not None)
        groups = TargetGroups(ledger, netd, clock)
        self.services = Services(
            ledger=ledger,
            rules=Rules(ledger, clock),
            nodes=Nodes(ledger, netd, clock, node_path=dialled_by, around=around),
            lines=Lines(ledger, netd, has_line_dns=has_line_dns, clock=clock),
            proxy_services=ProxyServices(
                ledger,
                clock,
                quota=quota,
                own_ports=own_ports,
                listening=network.listening_ports,
            ),
            whitelist=DeviceWhitelist(ledger),
            backups=Backups(
                ledger,
                store,
                folder,
                quota,
                restore_checks,
            ),
            system=system,
            settings=DeviceSettings(ledger),
            overviews=Overviews(
                ledger,
                netd,
                system,
                judge,
                _now_ms,
                own_problems=lambda: (
                    *own_problems(),
                    *recorder.problems(),
                    *devices.problems(),
                    *subscriptions.problems(),
                    *trials.problems(),
                ),
                timed_backups=timed_backups,
            ),
            why=Why(ledger, netd, allowed, judge),
            journal=journal,
            trials=trials,
            undo=Undo(ledger, store, journal, quota=quota, checks=restore_checks),
            machine_check=MachineCheck(netd, own_findings),
            history=recorder,
            devices=devices,
            connections=Connections(ledger, netd),
            members=members,
            exits=exits,
            groups=groups,
            subscriptions=subscriptions,
            rotations=Rotations(
                ledger,
                netd,
                groups,
                exits,
                allowed,
                store=records.rotations,
                clock=clock,
                note=journal.note,
            ),
            tokens=Tokens(records.tokens, time.time),
            alerts=alerts,
        )

    async def load(self) -> None:
        """Read the stored configuration, the tokens and the rotations of nodes. Raises Failed, and
        BadDatabase if the stored data cannot be trusted.
        """
        await self.ledger.load()
        await self.services.tokens.open()
        await self.services.rotations.open()

    def run(self, works: Background) -> None:
        """Begin what the use cases do by themselves."""
        services = self.services
        works.run(services.trials.follow(), "changes on trial")
        works.repeat(services.history.follow, "history")
        works.repeat(services.devices.follow, "device watch")
        works.repeat(services.exits.follow, "exit checks")
        works.repeat(services.alerts.follow, "alerts")
        works.repeat(services.subscriptions.follow, "subscriptions")

    async def close(self) -> None:
        """Wait for the changes under way, and write the last uses of tokens."""
        await self.services.rotations.close()
        await self.ledger.close()
        await self.services.tokens.close()


def _now_ms() -> str:
    return f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%S.%f}"[:-3] + "Z"


def _resident() -> int:
    """Return the resident bytes of this process (proc_pid_statm(5))."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")
