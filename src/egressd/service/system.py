"""Queries about the status of the device. Nothing here changes anything."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from egressd.model.errors import Failed
from egressd.model.messages import RuleCount, Status
from egressd.model.wording import as_sentence
from egressd.service.ledger import Ledger
from egressd.service.ports import Netd


class DeviceStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The device as a whole."""

    state: str
    """The phase: ``restoring``, ``running`` or ``stopped``."""
    uptime_s: int
    """Whole seconds since the service started."""
    has_api_access: bool
    connections: int
    """Tracked flows of LAN clients; 0 while netd is away."""
    memory: int
    """Resident bytes of all of egressd's processes that report them."""


class System:
    """Queries about the device.

    `uptime_s` returns the seconds since start, `own_memory` the resident bytes of this process,
    `has_api_access` the license's permission.
    """

    def __init__(
        self,
        ledger: Ledger,
        netd: Netd,
        *,
        uptime_s: Callable[[], float],
        own_memory: Callable[[], int],
        has_api_access: Callable[[], bool],
    ) -> None:
        self._ledger = ledger
        self._netd = netd
        self._uptime_s = uptime_s
        self._own_memory = own_memory
        self._has_api_access = has_api_access

    async def status(self) -> DeviceStatus:
        """Return the status of the device. Never fails: without netd it is ``restoring``."""
        return self.as_seen(await seen_by(self._netd))

    def as_seen(self, seen: Status) -> DeviceStatus:
        """Return the status of the device, from the status `seen` of netd."""
        return DeviceStatus(
            state="restoring" if seen.state == "restoring" else self._ledger.phase,
            uptime_s=int(self._uptime_s()),
            has_api_access=self._has_api_access(),
            connections=seen.connections,
            memory=self._own_memory() + seen.memory,
        )

    async def counters(self) -> dict[str, RuleCount]:
        """Return the traffic of each enabled rule, by its address. Raises Failed without netd."""
        counted = await self._netd.counters()
        rules = self._ledger.state.rules
        return {rules[key].host: count for key, count in counted.items() if key in rules}

    async def interfaces(self) -> list[str]:
        """Return the system's interfaces, then the enabled lines that are not among them.

        Raises Failed without netd.
        """
        return [name for name, _ in await self.interfaces_with_ip()]

    async def interfaces_with_ip(self) -> list[tuple[str, str]]:
        """Return the names of `interfaces`, each with its first IPv4 address or an empty string.

        Raises Failed without netd.
        """
        found = {i.name: i.ip for i in (await self._netd.status()).interfaces}
        lines = sorted(self._ledger.state.lines.values(), key=lambda line: line.id)
        for line in lines:
            if line.is_enabled:
                found.setdefault(line.name, "")
        return list(found.items())


async def seen_by(netd: Netd) -> Status:
    """Return netd's status of the device, lines included; hardly anything while netd is away."""
    try:
        status = await netd.status()
    except Failed as error:
        return Status(state="restoring", revision=0, problems=(as_sentence(str(error)),))
    return msgspec.structs.replace(status, lines=dict(netd.lines()))
