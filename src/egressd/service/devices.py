"""The devices of LANs: found by what netd sees and by leases, named by operators, and forgotten.

Times and addresses of devices that are known already are stored rarely, since flash memory wears.
What an operator sets is stored before it is answered.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator
from functools import lru_cache
from typing import Annotated, Final, Literal, TypeVar

import msgspec
import structlog
from msgspec import Meta
from msgspec.structs import replace

from egressd.formats.dhcp import read_request
from egressd.model.bounds import COMMENT_MAX
from egressd.model.devices import DEVICE_NAME_MAX, DEVICES_MAX, LanDevice, is_random_mac
from egressd.model.errors import Failed, Invalid, Missing, Outdated
from egressd.model.faults import fault
from egressd.model.messages import DeviceNews, TriedDestination
from egressd.model.times import utc_text
from egressd.model.wording import Sentence, as_sentence, say
from egressd.service import checks, device_events
from egressd.service.device_events import AT_ONCE, NewDevice
from egressd.service.device_rules import NO_RULE, DeviceRules
from egressd.service.device_table import RECENT_S, DeviceTable
from egressd.service.judge import Notice
from egressd.service.ledger import Ledger
from egressd.service.ports import DeviceRecord, LeaseSource, VendorSource

T = TypeVar("T")

log = structlog.get_logger()

TURN_S: Final = 5.0
"""Seconds between turns: events are reported, vendors looked up, and what is due is stored."""
LEASES_S: Final = 60.0
"""Seconds between looks at the files of leases."""
WRITE_S: Final = 600.0
"""Seconds between writes of what was seen at least; a few new devices are stored at once."""
TIMES_S: Final = 3600.0
"""Seconds between writes of times alone."""
_WAITING_MAX: Final = 64
"""Messages of netd that wait until the stored devices are read: the later ones are lost, and come
again with the next look."""
_TRIED_MAX: Final = 8
"""Destinations that a device shows."""
_YIELD_EVERY: Final = 500
"""Devices after which others have their turn."""


class AddressSeen(msgspec.Struct, frozen=True, kw_only=True):
    """An address of a device."""

    ip: str
    interface: Annotated[str, Meta(description="The LAN; empty if only a lease has the address.")]
    last_seen: Annotated[str, Meta(description="Empty if only a lease has the address.")]


class TriedSeen(msgspec.Struct, frozen=True, kw_only=True):
    """A destination that a device was refused."""

    protocol: Literal["tcp", "udp"]
    ip: str
    port: int
    packets: Annotated[
        int, Meta(description="Refused packets; the count ends after an hour without any.")
    ]


class DeviceSeen(msgspec.Struct, frozen=True, kw_only=True):
    """A device of a LAN."""

    mac: str
    name: Annotated[str, Meta(description="The operator's name for it.")]
    hostname: Annotated[str, Meta(description="Its own name, cleaned. Any device can lie.")]
    vendor: Annotated[
        str, Meta(description="The maker of its network card; else of its DHCP client.")
    ]
    is_random_mac: Annotated[bool, Meta(description="True if it has made its address up.")]
    addresses: Annotated[
        tuple[AddressSeen, ...], Meta(description="The one that was seen last comes first.")
    ]
    first_seen: str
    last_seen: str
    is_online: Annotated[
        bool, Meta(description="True if it was seen with an address within five minutes.")
    ]
    rule_id: Annotated[
        int | None, Meta(description="The rule of its address; null if it has none of its own.")
    ]
    covered_by: Annotated[
        str, Meta(description="The CIDR of the rule that covers it otherwise; empty if none does.")
    ]
    tried: Annotated[
        tuple[TriedSeen, ...],
        Meta(
            description="Where it was refused within the last hour, the most packets first, if no "
            "rule covers it."
        ),
    ]
    comment: str


class DevicesFound(msgspec.Struct, frozen=True, kw_only=True):
    """The first devices of all."""

    total: int
    without_rule: int
    """Devices that no rule covers."""
    rows: list[DeviceSeen]


class Devices:
    """Keeps the devices of LANs. `take` gets what netd sees."""

    def __init__(
        self,
        ledger: Ledger,
        record: DeviceRecord,
        *,
        vendors: VendorSource,
        leases: LeaseSource,
        now: Callable[[], float],
        notify: Callable[[Notice], None],
    ) -> None:
        """`now` returns the Unix time."""
        self._record = record
        self._vendor_source = vendors
        self._leases = leases
        self._now = now
        self._notify = notify
        self._rules = DeviceRules(lambda: ledger.state)
        self._table = DeviceTable(self._is_ruled)
        self._vendors: dict[str, str] = {}
        """Device -> the maker of its network card; empty if it is unknown."""
        self._tried: dict[str, list[TriedDestination]] = {}
        self._is_open = False
        self._waiting: list[DeviceNews] = []
        self._fault: Failed | None = None
        self._lock = asyncio.Lock()
        self._leases_at = self._write_at = self._times_at = 0.0

    # --- What is seen. -------------------------------------------------------------------

    def take(self, news: DeviceNews) -> None:
        """Note what netd has seen."""
        if not self._is_open:
            self._waiting = [*self._waiting, news][:_WAITING_MAX]
            return
        if news.tried is not None:
            self._tried = _by_client(news.tried)
        at = int(self._now())
        for seen in news.neighbours:
            self._table.see(seen.mac, seen.ip, seen.interface, at - seen.age_s)
        for frame in news.frames:
            client = read_request(frame.packet)
            # A request on behalf of another device is none of its own.
            if client is not None and client.mac == frame.mac:
                self._table.describe(client.mac, client.hostname, client.vendor_class, at)

    async def follow(self) -> None:
        """Keep the devices up to date until cancelled."""
        time = asyncio.get_running_loop().time
        self._write_at, self._times_at = time() + WRITE_S, time() + TIMES_S
        try:
            while True:
                try:
                    await self.turn(time())
                except Failed as error:
                    log.debug("devices are not stored", error=str(error))
                await asyncio.sleep(TURN_S)
        finally:
            await self.close()

    async def turn(self, time: float) -> None:
        """Do what is due at a time of the loop's clock. Raises Failed, with everything kept for the
        next turn.
        """
        await self._open()
        if time >= self._leases_at:
            self._leases_at = time + LEASES_S
            for lease in await self._leases.read():
                self._table.lease(lease, int(self._now()))
        await self._find_vendors()
        fresh, moved = [*self._table.fresh], [*self._table.moved]
        self._table.fresh.clear()
        self._table.moved.clear()
        new = [self._table.by_mac[mac] for mac in fresh if mac in self._table.by_mac]
        for notice in (
            *device_events.new([self._named(device) for device in new]),
            *device_events.moved((move, self._label(move.mac)) for move in moved),
        ):
            self._notify(notice)
        if time >= self._times_at:
            self._times_at, self._write_at = time + TIMES_S, time + WRITE_S
            self._table.expire(int(self._now()))
            await self._write({*self._table.changed, *self._table.touched})
        elif time >= self._write_at or 0 < len(new) <= AT_ONCE:
            self._write_at = time + WRITE_S
            await self._write({*self._table.changed})

    async def close(self) -> None:
        """Store everything, at a stop."""
        try:
            if self._is_open:
                await self._write({*self._table.changed, *self._table.touched})
        except Failed as error:
            log.error("what was seen of devices last is not stored", error=str(error))

    def problems(self) -> Iterator[Sentence]:
        """Yield the reason for which devices are not stored."""
        if self._fault is not None:
            yield say("devices-unwritten", reason=as_sentence(str(self._fault)))

    # --- Questions. ----------------------------------------------------------------------

    async def list(self, limit: int = DEVICES_MAX) -> DevicesFound:
        """Return the first devices: those without a rule first, and the latest ones first among
        both.
        """
        order = []
        for nth, device in enumerate([*self._table.by_mac.values()]):
            if nth % _YIELD_EVERY == _YIELD_EVERY - 1:
                await asyncio.sleep(0)
            rule = self._rules.of(self._table.address(device))
            order.append((rule != NO_RULE, -device.last_seen, device.mac))
        order.sort()
        at, rows = int(self._now()), []
        for nth, (_, _, mac) in enumerate(order[:limit]):
            if nth % _YIELD_EVERY == _YIELD_EVERY - 1:
                await asyncio.sleep(0)
            if mac in self._table.by_mac:
                rows.append(self._shown(self._table.by_mac[mac], at))
        without_rule = sum(not is_ruled for is_ruled, _, _ in order)
        return DevicesFound(total=len(order), without_rule=without_rule, rows=rows)

    def get(self, mac: str) -> DeviceSeen:
        """Return a device. Raises Missing."""
        return self._shown(self._existing(mac), int(self._now()))

    def tag(self, mac: str) -> str:
        """Return the entity tag of what an operator has set of a device. Raises Missing."""
        device = self._existing(mac)
        content = msgspec.json.encode([device.mac, device.name, device.comment])
        return f'"{hashlib.blake2b(content, digest_size=9).hexdigest()}"'

    # --- Changes. ------------------------------------------------------------------------

    async def edit(
        self, mac: str, name: str | None, comment: str | None, tags: Collection[str] = ()
    ) -> None:
        """Set the given fields. Raises Invalid, Missing, Failed, and Outdated if `tags` are given
        and none of them is the device's.
        """
        checks.refuse(
            problem
            for problem in (
                *checks.text("name", name or "", DEVICE_NAME_MAX),
                *checks.text("comment", comment or "", COMMENT_MAX),
            )
        )
        if name is None and comment is None:
            raise Invalid(fault("", "nothing-of-device"))
        async with self._lock:
            device = self._current(mac, tags)
            after = replace(
                device,
                name=device.name if name is None else name.strip(),
                comment=device.comment if comment is None else comment,
            )
            await self._store([after], ())
            # What was seen meanwhile stays.
            now = self._table.by_mac.get(mac, after)
            self._table.edit(replace(now, name=after.name, comment=after.comment))

    async def forget(self, mac: str, tags: Collection[str] = ()) -> None:
        """Remove a device. It is a new one if it is seen again. Raises as `edit` does."""
        async with self._lock:
            self._current(mac, tags)
            await self._store((), [mac])
            if mac in self._table.by_mac:
                self._table.forget([mac])
            self._table.gone.discard(mac)
            self._vendors.pop(mac, None)

    # --- Parts. --------------------------------------------------------------------------

    def _existing(self, mac: str) -> LanDevice:
        device = self._table.by_mac.get(mac)
        if device is None:
            raise Missing(fault("mac", "no-such-device", mac=mac))
        return device

    def _current(self, mac: str, tags: Collection[str]) -> LanDevice:
        """Return a device that is still the one with one of `tags`, if there are any."""
        device = self._existing(mac)
        if tags and self.tag(mac) not in tags:
            raise Outdated(fault("", "device-changed", mac=mac))
        return device

    async def _open(self) -> None:
        """Read the stored devices, if that is not done yet."""
        if self._is_open:
            return
        self._table.take(await self._noting(self._record.load()))
        self._is_open = True
        waiting, self._waiting = self._waiting, []
        for news in waiting:
            self.take(news)

    async def _find_vendors(self) -> None:
        for mac in self._vendors.keys() - self._table.by_mac.keys():
            del self._vendors[mac]
        unknown = [
            mac
            for mac in self._table.by_mac.keys() - self._vendors.keys()
            if not is_random_mac(mac)
        ]
        if unknown:
            found = await self._vendor_source.names(unknown)
            self._vendors |= {mac: found.get(mac, "") for mac in unknown}

    async def _write(self, macs: Collection[str]) -> None:
        """Store these devices, and delete those that are gone."""
        table = self._table
        async with self._lock:
            devices = [table.by_mac[mac] for mac in macs if mac in table.by_mac]
            gone = [*table.gone]
            if not devices and not gone:
                return
            changed, touched = table.changed & {*macs}, table.touched & {*macs}
            table.changed -= changed
            table.touched -= touched
            table.gone.clear()
            try:
                await self._store(devices, gone)
            except Failed:
                table.changed |= changed & table.by_mac.keys()
                table.touched |= touched & table.by_mac.keys()
                table.gone |= {*gone} - table.by_mac.keys()
                raise

    async def _store(self, devices: Iterable[LanDevice], gone: Iterable[str]) -> None:
        if not self._is_open:
            raise Failed("store a device", "the stored devices are not read yet")
        await self._noting(self._record.write([*devices], [*gone]))

    async def _noting(self, work: Awaitable[T]) -> T:
        """Await `work`, and note whether the disk fails."""
        try:
            done = await work
        except Failed as error:
            if self._fault is None:
                log.error("devices cannot be stored", error=str(error))
            self._fault = error
            raise
        self._fault = None
        return done

    def _is_ruled(self, device: LanDevice) -> bool:
        return self._rules.of(self._table.address(device)).rule_id is not None

    def _shown(self, device: LanDevice, at: int) -> DeviceSeen:
        ip = self._table.address(device)
        rule = self._rules.of(ip)
        tried = self._tried.get(ip, ()) if rule == NO_RULE else ()
        return DeviceSeen(
            mac=device.mac,
            name=device.name,
            hostname=device.hostname,
            vendor=self._vendor(device),
            is_random_mac=is_random_mac(device.mac),
            addresses=tuple(
                AddressSeen(
                    ip=each.ip,
                    interface=each.interface,
                    last_seen=_time(each.last_seen),
                )
                for each in device.addresses
            ),
            first_seen=_time(device.first_seen),
            last_seen=_time(device.last_seen),
            is_online=any(at - each.last_seen <= RECENT_S for each in device.addresses),
            rule_id=rule.rule_id,
            covered_by=rule.covered_by,
            tried=tuple(
                TriedSeen(
                    protocol="tcp" if each.protocol == "tcp" else "udp",
                    ip=each.ip,
                    port=each.port,
                    packets=each.packets,
                )
                for each in tried
            ),
            comment=device.comment,
        )

    def _vendor(self, device: LanDevice) -> str:
        return self._vendors.get(device.mac, "") or device.vendor_class

    def _label(self, mac: str) -> str:
        device = self._table.by_mac.get(mac)
        if device is None:
            return mac
        return device.name or device.hostname or self._vendor(device) or mac

    def _named(self, device: LanDevice) -> NewDevice:
        return NewDevice(
            device.mac,
            self._label(device.mac),
            self._table.address(device),
            device.hostname,
            self._vendor(device),
        )


def _by_client(tried: Iterable[TriedDestination]) -> dict[str, list[TriedDestination]]:
    """Return the destinations with the most packets of each client."""
    found: dict[str, list[TriedDestination]] = {}
    for each in sorted(tried, key=lambda each: -each.packets):
        of_client = found.setdefault(each.client, [])
        if len(of_client) < _TRIED_MAX:
            of_client.append(each)
    return found


@lru_cache(maxsize=4096)
def _time(at: int) -> str:
    """Return a time as text: devices of one look have the same."""
    return utc_text(at) if at else ""
