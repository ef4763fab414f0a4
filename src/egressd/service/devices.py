"""The devices of LANs: found by what netd sees and by leases, named by operators, and forgotten.

Times and addresses of devices that are known already are stored rarely, since flash memory wears.
What an operator sets is stored before it is answered.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator
from contextlib import suppress
from typing import Final, NamedTuple, TypeVar

import msgspec
import structlog
from msgspec.structs import replace

from egressd.formats.dhcp import read_request
from egressd.model.bounds import COMMENT_MAX
from egressd.model.devices import DEVICE_NAME_MAX, DEVICES_MAX, LanDevice, is_random_mac
from egressd.model.errors import Failed, Invalid, Missing
from egressd.model.faults import fault
from egressd.model.messages import DeviceNews, Impostor, TriedDestination
from egressd.model.wording import Sentence, as_sentence, say
from egressd.service import checks, device_events
from egressd.service.bindings import Bindings
from egressd.service.device_events import AT_ONCE, NewDevice
from egressd.service.device_rules import NO_RULE, DeviceRules
from egressd.service.device_table import DeviceTable, Moved
from egressd.service.device_views import DeviceSeen, DevicesFound, shown, tried_by_client
from egressd.service.judge import Notice
from egressd.service.ledger import Ledger
from egressd.service.ports import DeviceRecord, LeaseSource, VendorSource
from egressd.service.versions import demand, tag_of

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
_YIELD_EVERY: Final = 500
"""Devices after which others have their turn."""


class DeviceEdit(NamedTuple):
    """The settings of a device that an operator makes; None for those that stay."""

    name: str | None = None
    comment: str | None = None
    is_bound: bool | None = None


class _Set(msgspec.Struct, frozen=True, array_like=True):
    """The part of a device that an operator has set: its entity tag is made of that."""

    mac: str
    name: str
    comment: str
    is_bound: bool


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
        bindings: Bindings,
    ) -> None:
        """`now` returns the Unix time."""
        self._record = record
        self._vendor_source = vendors
        self._leases = leases
        self._now = now
        self._notify = notify
        self._bindings = bindings
        self._rules = DeviceRules(lambda: ledger.state)
        self._table = DeviceTable(self._is_ruled)
        self._vendors: dict[str, str] = {}
        """Device -> the maker of its network card; empty if it is unknown."""
        self._impostors: set[tuple[str, str]] = set()
        """Addresses that belong to a device, and other devices that used them lately."""
        self._is_awaited = asyncio.Event()
        """Set once a turn is due before its time."""
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
            self._tried = tried_by_client(news.tried)
        if news.impostors is not None:
            self._take_impostors(news.impostors)
        at = int(self._now())
        for seen in news.neighbours:
            self._table.see(seen.mac, seen.ip, seen.interface, at - seen.age_s)
        for frame in news.frames:
            client = read_request(frame.packet)
            # A request on behalf of another device is none of its own.
            if client is not None and client.mac == frame.mac:
                self._table.describe(client.mac, client.hostname, client.vendor_class, at)
        if self._table.moved:
            self._is_awaited.set()

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
                with suppress(TimeoutError):
                    async with asyncio.timeout(TURN_S):
                        await self._is_awaited.wait()
                self._is_awaited.clear()
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
        fresh, moved = {**self._table.fresh}, [*self._table.moved]
        self._table.fresh.clear()
        self._table.moved.clear()
        new = [self._table.by_mac[mac] for mac in fresh if mac in self._table.by_mac]
        for notice in (
            *device_events.new([self._named(device) for device in new]),
            *device_events.moved(
                (move, self._label(move.mac)) for move in moved if move.mac not in fresh
            ),
        ):
            self._notify(notice)
        await self._let_rules_follow(moved)
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

    async def list(self, limit: int = DEVICES_MAX, search: str = "") -> DevicesFound:
        """Return the first devices that have each word of `search` in their texts: those without a
        rule first, and the latest ones first among both.
        """
        order, words = [], search.lower().split()
        for nth, device in enumerate([*self._table.by_mac.values()]):
            if nth % _YIELD_EVERY == _YIELD_EVERY - 1:
                await asyncio.sleep(0)
            if words and not self._has(device, words):
                continue
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
        return tag_of(self._set_of(self._existing(mac)))

    # --- Changes. ------------------------------------------------------------------------

    async def edit(self, mac: str, edit: DeviceEdit, tags: Collection[str] = ()) -> None:
        """Set the given fields. Raises Invalid, Missing, Failed, and Outdated if `tags` are given
        and none of them is the device's.
        """
        name, comment, is_bound = edit
        checks.refuse(
            problem
            for problem in (
                *checks.text("name", name or "", DEVICE_NAME_MAX),
                *checks.text("comment", comment or "", COMMENT_MAX),
            )
        )
        if name is None and comment is None and is_bound is None:
            raise Invalid(fault("", "nothing-of-device"))
        async with self._lock:
            device = self._current(mac, tags)
            if name is None and comment is None:
                await self._set_bound(device, is_bound)
                return
            after = replace(
                device,
                name=device.name if name is None else name.strip(),
                comment=device.comment if comment is None else comment,
            )
            await self._store([after], ())
            try:
                await self._set_bound(device, is_bound)
            except Exception:
                await self._store([self._table.by_mac.get(mac, device)], ())
                raise
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

    async def _set_bound(self, device: LanDevice, is_bound: bool | None) -> None:
        """Bind a device's rule to it or to its address alone, unless `is_bound` is None."""
        if is_bound:
            await self._bindings.bind(device, self._table.address(device), int(self._now()))
        elif is_bound is False:
            await self._bindings.unbind(device.mac)

    def _take_impostors(self, impostors: Iterable[Impostor]) -> None:
        """Report the devices that use addresses which belong to others, each once."""
        found = {(each.ip, each.mac) for each in impostors}
        fresh, self._impostors = found - self._impostors, found
        for ip, mac in sorted(fresh)[:AT_ONCE]:
            rule = self._bindings.rule_at(ip)
            if rule is not None and mac != rule.bound_mac:
                owner = rule.bound_mac
                self._notify(
                    device_events.impostor(ip, mac, self._label(mac), self._label(owner), owner)
                )

    async def _let_rules_follow(self, moved: Iterable[Moved]) -> None:
        """Move the rules that belong to devices to their present addresses."""
        table = self._table
        try:
            found = await self._bindings.follow(
                table.by_mac, table.holders, moved, int(self._now())
            )
        except Failed as error:
            log.warning("a rule could not follow its device yet", error=str(error))
            return
        for each in found:
            if not each.is_done:
                self._notify(device_events.unfollowed(each, self._label(each.mac)))

    def _existing(self, mac: str) -> LanDevice:
        device = self._table.by_mac.get(mac)
        if device is None:
            raise Missing(fault("mac", "no-such-device", mac=mac))
        return device

    def _current(self, mac: str, tags: Collection[str]) -> LanDevice:
        """Return a device that is still the one with one of `tags`, if there are any."""
        device = self._existing(mac)
        demand(self._set_of(device), tags, fault("", "device-changed", mac=mac))
        return device

    def _set_of(self, device: LanDevice) -> _Set:
        is_bound = self._bindings.rule_of(device.mac) is not None
        return _Set(device.mac, device.name, device.comment, is_bound)

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
        return shown(
            device,
            at,
            vendor=self._vendor(device),
            rule=rule,
            tried=self._tried.get(ip, ()) if rule == NO_RULE else (),
            is_bound=self._bindings.rule_of(device.mac) is not None,
        )

    def _has(self, device: LanDevice, words: Collection[str]) -> bool:
        """Return True if each word, in lower case, is in the device's texts or addresses."""
        texts = (device.name, device.comment, device.hostname, device.mac, self._vendor(device))
        text = "\n".join((*texts, *(each.ip for each in device.addresses))).lower()
        return all(word in text for word in words)

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
