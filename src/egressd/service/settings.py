"""The device's own settings."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import Final

import msgspec

from egressd.model.desired import DesiredState, Edit
from egressd.model.drafts import Outcome
from egressd.model.faults import Fault, fault
from egressd.model.nouns import DEFAULT_STRATEGIES, AlertPolicy, Settings
from egressd.planner.outbounds import TUNNELS
from egressd.service import checks
from egressd.service.group_checks import of_nodes
from egressd.service.ledger import Ledger, Proposal
from egressd.service.versions import demand, tag_of

CHECK_INTERVAL_S: Final = (5, 3600)
"""Seconds between health checks: the fewest and the most."""


class DeviceSettings:
    """The settings that belong to no single resource."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    def get(self) -> Settings:
        """Return the settings in force."""
        return self._ledger.state.settings

    async def put(self, settings: Settings, tags: Collection[str] = ()) -> Outcome[Settings]:
        """Replace all but the alerts' policy and the stopped and opened states. `tags`: see
        `versions.demand`. Raises Invalid, Outdated.
        """

        def build(state: DesiredState) -> Proposal[Settings]:
            demand(_saved(state.settings), tags, fault("", "settings-changed"))
            checks.refuse(_problems(state, settings))
            kept = state.settings
            wanted = msgspec.structs.replace(
                settings, stopped=kept.stopped, opened=kept.opened, alerts=kept.alerts
            )
            return Proposal([Edit("settings", 0, wanted)], wanted)

        return await self._ledger.change(build)

    async def stop(self) -> Outcome[Settings]:
        """Block every client. The guard, and all configuration, stays."""
        return await self._switch(stopped=True, opened=False)

    async def start(self) -> Outcome[Settings]:
        """Let the rules apply again."""
        return await self._switch(stopped=False, opened=False)

    async def open(self) -> Outcome[Settings]:
        """Let every client out directly, regardless of the rules, until `start` or `stop`."""
        return await self._switch(stopped=False, opened=True)

    async def _switch(self, *, stopped: bool, opened: bool) -> Outcome[Settings]:
        def build(state: DesiredState) -> Proposal[Settings]:
            settings = msgspec.structs.replace(state.settings, stopped=stopped, opened=opened)
            return Proposal([Edit("settings", 0, settings)], settings)

        return await self._ledger.change(build)


def settings_tag(settings: Settings) -> str:
    """Return the tag of a version, to which neither a stop or start nor the alerts make a
    difference.
    """
    return tag_of(_saved(settings))


def _saved(settings: Settings) -> Settings:
    return msgspec.structs.replace(settings, stopped=False, opened=False, alerts=AlertPolicy())


def _problems(state: DesiredState, settings: Settings) -> Iterator[Fault]:
    yield from field_problems(settings, checks.target("unmanaged", settings.unmanaged, state))
    node = state.node_named(settings.unmanaged)
    if node is not None and node.protocol in TUNNELS:
        yield fault("unmanaged", "unmanaged-tunnel", protocol=node.protocol)
    yield from of_nodes("unmanaged", settings.unmanaged, state)


def field_problems(settings: Settings, target_problems: Iterable[Fault]) -> Iterator[Fault]:
    """Yield every fault of the settings' fields."""
    yield from target_problems
    yield from checks.url("delay_url", settings.delay_url)
    yield from checks.whole("check_interval_s", settings.check_interval_s, *CHECK_INTERVAL_S)
    yield from checks.one_of("group_strategy", settings.group_strategy, DEFAULT_STRATEGIES)
