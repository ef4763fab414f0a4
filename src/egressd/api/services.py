"""The use cases that the API calls."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from egressd.model.site import MemberState
from egressd.service.alerts import Alerts
from egressd.service.backups import Backups
from egressd.service.connections import Connections
from egressd.service.devices import Devices
from egressd.service.exits import Exits
from egressd.service.groups import TargetGroups
from egressd.service.history import History
from egressd.service.journal import Journal
from egressd.service.ledger import Ledger
from egressd.service.lines import Lines
from egressd.service.machine_check import MachineCheck
from egressd.service.nodes import Nodes
from egressd.service.overview import Overviews
from egressd.service.proxy_services import ProxyServices
from egressd.service.rotations import Rotations
from egressd.service.route_probe import Why
from egressd.service.rules import Rules
from egressd.service.settings import DeviceSettings
from egressd.service.subscriptions import Subscriptions
from egressd.service.system import System
from egressd.service.tokens import Tokens
from egressd.service.trials import ChangeTrials
from egressd.service.undo import Undo
from egressd.service.whitelist import DeviceWhitelist


@dataclass(frozen=True, kw_only=True)
class Services:
    """One object a resource, all of the same `ledger`."""

    ledger: Ledger
    system: System
    nodes: Nodes
    lines: Lines
    rules: Rules
    whitelist: DeviceWhitelist
    proxy_services: ProxyServices
    backups: Backups
    settings: DeviceSettings
    overviews: Overviews
    why: Why
    journal: Journal
    undo: Undo
    trials: ChangeTrials
    machine_check: MachineCheck
    history: History
    exits: Exits
    groups: TargetGroups
    rotations: Rotations
    subscriptions: Subscriptions
    alerts: Alerts
    devices: Devices
    connections: Connections
    tokens: Tokens
    members: Callable[[], Sequence[MemberState]]
    """Returns the members of the site; none on a box of its own."""
