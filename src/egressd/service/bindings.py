"""Bindings: rules of hosts that belong to a device, and follow it to another address.

The rule has the device's hardware address (`Rule.bound_mac`); the kernel drops what another device
sends from the rule's address. So while a device and its rule have different addresses, no packet
passes by the rule, and the device has the rule again within seconds after it has shown itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple

import structlog
from msgspec.structs import replace

from egressd.model.console import ChangeRecord
from egressd.model.desired import DesiredState, Edit
from egressd.model.devices import LanDevice
from egressd.model.errors import Invalid
from egressd.model.faults import fault
from egressd.model.nouns import Rule
from egressd.model.times import utc_text
from egressd.model.wording import say
from egressd.service.authorship import DEVICE, Author, authored
from egressd.service.device_table import Moved
from egressd.service.ledger import Ledger, Proposal
from egressd.service.ports import Clock

log = structlog.get_logger()

IN_USE_S: Final = 120
"""Seconds for which a device uses an address after it was seen with it: netd reports signs of life
each minute."""


class Followed(NamedTuple):
    """A device that turned up with another address than its rule has."""

    mac: str
    before: str
    ip: str
    is_done: bool
    """False if the rule stays, because the address has a rule that belongs to no device."""


class Bindings:
    """Binds rules to devices, and lets them follow. One for each box."""

    def __init__(
        self,
        ledger: Ledger,
        clock: Clock,
        *,
        note: Callable[[ChangeRecord, str], None],
        is_standby: Callable[[], bool],
    ) -> None:
        """`note` takes the records of changes and the kind of thing that has changed. The standby
        box of a pair does not let rules follow: the active one does, which all clients are behind.
        """
        self._ledger = ledger
        self._clock = clock
        self._note = note
        self._is_standby = is_standby
        self._made_of: Mapping[int, Rule] | None = None
        self._by_mac: dict[str, int] = {}
        self._turned_up: dict[str, str] = {}
        """Device -> the address that it turned up with, until its rule is there."""
        self._stays: set[str] = set()
        """Devices that a rule cannot follow, and that were reported."""

    def rule_of(self, mac: str) -> Rule | None:
        """Return the rule that belongs to a device."""
        rules = self._ledger.state.rules
        if self._made_of is not rules:
            self._by_mac = {rule.bound_mac: rule.id for rule in rules.values() if rule.bound_mac}
            self._made_of = rules
        rule_id = self._by_mac.get(mac)
        return None if rule_id is None else rules[rule_id]

    def rule_at(self, ip: str) -> Rule | None:
        """Return the rule of an address that belongs to a device."""
        state = self._ledger.state
        rule_id = state.rule_by_ip.get(f"{ip}/32")
        return state.rules[rule_id] if rule_id and state.rules[rule_id].bound_mac else None

    async def bind(self, device: LanDevice, ip: str, at: int) -> None:
        """Bind the rule of a device's address `ip` to it. Raises Invalid, Failed."""
        if len(_in_use(device, at)) > 1:
            raise Invalid(fault("is_bound", "device-shares-mac", mac=device.mac))

        def build(state: DesiredState) -> Proposal[None]:
            rule_id = state.rule_by_ip.get(f"{ip}/32") if ip else None
            if rule_id is None:
                raise Invalid(fault("is_bound", "device-without-rule", mac=device.mac))
            rule = state.rules[rule_id]
            if rule.bound_mac == device.mac:
                return Proposal([], None)
            if rule.bound_mac:
                raise Invalid(fault("is_bound", "address-is-bound", ip=ip, mac=rule.bound_mac))
            others = (each for each in state.rules.values() if each.bound_mac == device.mac)
            if (other := next(others, None)) is not None:
                raise Invalid(fault("is_bound", "device-is-bound", ip=other.host, mac=device.mac))
            return self._proposal(replace(rule, bound_mac=device.mac))

        await self._ledger.change(build)

    async def unbind(self, mac: str) -> None:
        """Let a device's rule be its address's alone. Raises Failed."""

        def build(state: DesiredState) -> Proposal[None]:
            bound = [rule for rule in state.rules.values() if rule.bound_mac == mac]
            return self._proposal(*(replace(rule, bound_mac="") for rule in bound))

        await self._ledger.change(build)

    async def follow(
        self,
        devices: Mapping[str, LanDevice],
        holders: Mapping[str, str],
        moved: Iterable[Moved],
        at: int,
    ) -> list[Followed]:
        """Let rules follow their devices, each by a change of its own, and return those that have
        moved, or that stay and have not been reported.

        `holders`: address -> the device that was seen with it last; `moved` are the moves since
        the last call. Raises Failed; the call is to be repeated.
        """
        for move in moved:
            self._turned_up[move.mac] = move.ip
        self.rule_of("")
        self._turned_up = {m: ip for m, ip in self._turned_up.items() if m in self._by_mac}
        if self._is_standby():
            self._turned_up.clear()
            return []
        found = []
        for mac in [*self._by_mac]:
            rule, device = self.rule_of(mac), devices.get(mac)
            if rule is None or device is None:
                continue
            ip = next_address(
                device, rule, at, has_turned_up=self._turned_up.get(mac) == _latest(device)
            )
            if not ip or holders.get(ip, mac) != mac:
                self._turned_up.pop(mac, None)
                self._stays.discard(mac)
            elif await self._move(rule, ip):
                self._stays.discard(mac)
                found.append(Followed(mac, rule.host, ip, is_done=True))
            elif mac not in self._stays:
                self._stays.add(mac)
                found.append(Followed(mac, rule.host, ip, is_done=False))
        return found

    async def _move(self, rule: Rule, ip: str) -> bool:
        """Give a rule another address, and return whether it has it. If the address has a rule of
        another device's, that one gets the address in exchange: it waits there for its device.
        """
        if _is_taken(self._ledger.state, ip):
            return False

        def build(state: DesiredState) -> Proposal[bool]:
            now = state.rules.get(rule.id)
            is_changed = now is None or (now.ip, now.bound_mac) != (rule.ip, rule.bound_mac)
            if now is None or is_changed or _is_taken(state, ip):
                return Proposal([], False)  # an operator was faster
            other_id = state.rule_by_ip.get(f"{ip}/32")
            others = [] if other_id is None else [replace(state.rules[other_id], ip=now.ip)]
            return Proposal(self._proposal(replace(now, ip=f"{ip}/32"), *others).edits, True)

        with authored(Author(who=DEVICE, what=f"follow {rule.bound_mac}")) as author:
            outcome = await self._ledger.change(build)
        if outcome.value:
            log.info(
                "rule followed its device",
                rule=rule.id,
                mac=rule.bound_mac,
                before=rule.host,
                ip=ip,
            )
            text = say("rule-followed", ip=ip, before=rule.host, mac=rule.bound_mac)
            self._note(
                author.record(self._clock(), text),
                "rules",
            )
        return outcome.value

    def _proposal(self, *rules: Rule) -> Proposal[None]:
        now = self._clock()
        edits = [Edit("rules", rule.id, replace(rule, updated_at=now)) for rule in rules]
        return Proposal(edits, None)


def next_address(device: LanDevice, rule: Rule, at: int, *, has_turned_up: bool) -> str:
    """Return the address that a device's rule must have in place of its own; empty if it stays.

    A device that has just turned up with an address is followed at once. Else it must not have
    been seen with the rule's address lately, and with the other one since the rule was changed: a
    box that was away, or the standby of a pair, has seen less.
    """
    ip = _latest(device)
    if not ip or ip == rule.host:
        return ""
    used = _in_use(device, at)
    if used - {ip, rule.host}:
        return ""
    if not has_turned_up:
        latest = device.addresses[0].last_seen
        if rule.host in used or ip not in used or utc_text(latest) < rule.updated_at:
            return ""
    return ip


def _is_taken(state: DesiredState, ip: str) -> bool:
    """True if an address has a rule that belongs to no device."""
    rule_id = state.rule_by_ip.get(f"{ip}/32")
    return rule_id is not None and not state.rules[rule_id].bound_mac


def _latest(device: LanDevice) -> str:
    """Return the address that a device was seen with last; empty if it was seen with none."""
    return next((each.ip for each in device.addresses if each.last_seen), "")


def _in_use(device: LanDevice, at: int) -> set[str]:
    """Return the addresses that a device uses."""
    return {
        each.ip for each in device.addresses if each.last_seen and at - each.last_seen <= IN_USE_S
    }
