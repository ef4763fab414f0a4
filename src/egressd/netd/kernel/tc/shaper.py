"""Sets speed limits, changes them one by one, and repairs other programs' changes.

The order within a change: classes are made before the elements that lead to them and removed after
these, so that no packet is ever led to a missing class (it would pass unlimited).
"""

from __future__ import annotations

import socket
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from ipaddress import IPv4Network
from typing import Final

import structlog

from egressd.model.errors import Failed
from egressd.model.messages import RuleCount
from egressd.model.plan import Limit, Patch
from egressd.netd.kernel import modules, uapi
from egressd.netd.kernel.netlink import NetlinkSocket
from egressd.netd.kernel.nft import Nft
from egressd.netd.kernel.tc import device, elements
from egressd.netd.kernel.tc.counts import (
    NO_PLACES,
    LimitCounters,
    PassedBy,
    Places,
    count_script,
)
from egressd.netd.kernel.tc.forest import Forest
from egressd.netd.kernel.tc.moves import LimitChange, hosts_of, moves_between
from egressd.netd.kernel.tc.numbers import ClassNumbers
from egressd.planner import shaping as script
from egressd.planner.sets import Elements
from egressd.planner.shaping import (
    DIRECTIONS,
    DOWNLOAD,
    FRAME_BYTES,
    PACKET_BYTES,
    Hook,
    is_limited,
)
from egressd.planner.topology import Topology

log = structlog.get_logger()

_VLAN_TAG_BYTES: Final = 4


class Shaper:
    """The speed limits of this network namespace, and its counters. `passed_by` counts the traffic
    that bypasses these.

    Not to be shared between threads at the same time. Methods block: `change` for 0.2 ms a rule,
    `sync` and `counters` for half a second at 10,000 rules.
    """

    def __init__(self, nft: Nft, passed_by: PassedBy | None = None) -> None:
        self._nft = nft
        self._route = NetlinkSocket(uapi.NETLINK_ROUTE)
        self._forests = {d: Forest(self._route, d.device) for d in DIRECTIONS}
        self._counters = LimitCounters(self._forests[DOWNLOAD], passed_by)
        self._numbers = ClassNumbers()
        self._hosts: dict[str, Limit] = {}
        self._nets: dict[str, Limit] = {}
        self._ranges: dict[str, int] = {}
        """Range of CIDR rules -> number of the rule that has it."""
        self._is_counting = False
        self._net_elements: Elements = {}
        self._device_elements: Elements = {}
        self._local: Elements = {}
        self._lans: tuple[Hook, ...] = ()
        self._hooks: tuple[Hook, ...] = ()
        """The LANs while any client is limited; else none."""
        self._networks: tuple[IPv4Network, ...] = ()
        self._frame = 0
        self._rules: list[bytes] = []
        """The table's rules right after they were last loaded."""

    @property
    def port(self) -> int:
        """The netlink port that announcements of our own changes bear."""
        return self._route.port

    @property
    def devices(self) -> frozenset[int]:
        """The indexes of our devices, as of the last look."""
        return frozenset(i for forest in self._forests.values() for i in forest.devices.values())

    def close(self) -> None:
        """Close the netlink socket. All limits stay in force."""
        self._route.close()

    # --- Converging. --------------------------------------------------------------------

    def sync(self, limits: Mapping[str, Limit], topology: Topology) -> int:
        """Make the limits exactly these, from any previous state; return the number of corrections.

        Repeat-safe: correct objects are left alone, with their counts and waiting packets. Classes
        that an earlier netd gave to rules stay theirs. Raises Failed.
        """
        self._hosts = hosts_of(limits)
        self._nets = {key: limit for key, limit in limits.items() if "/" in key}
        self._local = script.local_elements(topology)
        self._lans = _present_hooks(topology)
        self._is_counting = bool(topology.lans)
        hooks = self._lans if any(map(is_limited, limits.values())) else ()
        places = hooks, script.lan_networks(topology)
        if places != (self._hooks, self._networks):
            self._hooks, self._networks = places
            self._rules = []  # the rules are for other places
        with _told_as_failed("set speed limits"):
            self._fit(topology)
            return self._converge()

    def refresh(self, topology: Topology) -> int:
        """Adapt to the present interfaces and addresses, and repair evident damage.

        O(1) in the number of limits if there is no damage: to be called after every change of the
        machine's network, and periodically. As `sync` otherwise.
        """
        local = script.local_elements(topology)
        with _told_as_failed("look after speed limits"):
            if not self._is_intact() or self._is_counting != bool(topology.lans):
                return self.sync({**self._hosts, **self._nets}, topology)
            self._fit(topology)
            text = script.NETDEV.update(self._local, local)
            if text:
                self._nft.run(text)
                self._local = local
            self._lans = _present_hooks(topology)
            return self._hook(script.lan_networks(topology)) or bool(text)

    def _converge(self) -> int:
        with NetlinkSocket(uapi.NETLINK_NETFILTER) as netfilter:
            present = _present_elements(netfilter)
        if not self._numbers.given:
            self._numbers.recover(self._classes_in(present))
        limits = [*self._hosts.values(), *self._nets.values()]
        limited = {limit.number for limit in limits if is_limited(limit)}
        gone = [rule for rule in self._numbers.given if rule not in limited]
        self._numbers.give(limited)
        classes = self._numbers.given
        healed = 0
        left_over = {}
        for direction, forest in self._forests.items():
            shapes = {
                script.class_at(classes[limit.number], kbps): script.shape(kbps)
                for limit in limits
                if (kbps := direction.kbps(limit))
            }
            put, left_over[forest] = forest.converge(shapes)
            healed += put
        self._ranges = script.net_ranges(self._nets)
        self._net_elements = script.net_elements(self._nets, classes)
        exceptions = script.with_exceptions(self._nets)
        hosts = script.host_elements(self._hosts, classes, exceptions)
        text = ""
        if not self._has_rules():
            text = script.chains(self._hooks, self._networks, elements.base_chains())
        self._device_elements = self._devices()
        wanted = {**self._device_elements, **self._local, **hosts, **self._net_elements}
        text += script.NETDEV.update(present, wanted)
        counting = (self._hosts, self._ranges) if self._is_counting else ((), ())
        recount = count_script(present, script.count_elements(*counting))
        if text + recount:
            places = self._places() if recount else NO_PLACES
            with self._counters.carried(places, places):
                self._nft.run(text + recount)
            self._rules = elements.rules()
            healed += 1
        healed += sum(forest.prune(unwanted) for forest, unwanted in left_over.items())
        self._numbers.take_back(gone)
        return healed

    def _hook(self, networks: tuple[IPv4Network, ...]) -> bool:
        """Catch packets on the LANs as long as any client is limited; return True if this
        changed.
        """
        places = self._lans if self._numbers.given else (), networks
        if places == (self._hooks, self._networks):
            return False
        self._nft.run(script.chains(*places, elements.base_chains()))
        self._hooks, self._networks = places
        self._rules = elements.rules()
        return True

    def _fit(self, topology: Topology) -> None:
        """Let the trees take frames as large as the LANs'."""
        packet = max([PACKET_BYTES, *(device.mtu(self._route, name) for name in topology.lans)])
        frame = packet + FRAME_BYTES - PACKET_BYTES + 2 * _VLAN_TAG_BYTES
        if frame != self._frame:
            for forest in self._forests.values():
                forest.fit(frame)
            self._frame = frame

    def _is_intact(self) -> bool:
        return self._has_rules() and all(f.is_intact() for f in self._forests.values())

    def _has_rules(self) -> bool:
        return bool(self._rules) and elements.rules() == self._rules

    def _devices(self) -> Elements:
        return script.device_elements({d: f.devices for d, f in self._forests.items()})

    def _classes_in(self, present: Elements) -> dict[int, int]:
        """Return rule -> the number of its classes, as far as the kernel's maps show."""
        rules = {key: limit.number for key, limit in self._hosts.items()}
        rules.update(script.net_ranges(self._nets))
        found: dict[int, int] = {}
        for name in (name for d in DIRECTIONS for name in (d.hosts, d.nets)):
            for key, value in present[name].items():
                if key in rules:
                    number = script.class_number(int(value, 16))
                    found.setdefault(rules[key], script.given_number(number))
        return found

    # --- Changing. ----------------------------------------------------------------------

    def change(self, patch: Patch[Limit]) -> None:
        """Put `patch` in force, or raise Failed and leave the limits as they were.

        The cost is that of the patch's length, and O(CIDR rules) if it contains one of those.
        """
        self._numbers.give(limit.number for limit in patch.put.values() if is_limited(limit))
        old, old_nets = self._limits_of([*patch.put, *patch.drop]), self._nets
        try:
            self._apply(patch.put, patch.drop)
            try:
                self._carry_out(moves_between(old, patch.put), old_nets)
            except (Failed, OSError) as error:
                log.warning(
                    "rate limits differ from the expected state; rereading all", error=str(error)
                )
                with _told_as_failed("change speed limits"):
                    self._converge()
        except Failed:
            self._apply(old, [key for key in patch.put if key not in old])
            with suppress(Failed, OSError):
                self._converge()
            raise

    def _carry_out(self, moves: Sequence[LimitChange], old_nets: Mapping[str, Limit]) -> None:
        left = []
        for direction, forest in self._forests.items():
            for move in moves:
                old_kbps, kbps = move.kbps(direction)
                if kbps == old_kbps:
                    continue
                old, new = move.classes(direction, self._numbers.given[move.rule])
                if new is not None:
                    forest.open(new)
                    forest.put(new, script.shape(kbps), is_new=new != old)
                if old is not None and new != old:
                    left.append((forest, old))
        self._hook(self._networks)
        self._flip(moves, old_nets)
        for forest, number in left:
            forest.drop(number)
        self._numbers.take_back(m.rule for m in moves if m.new is None or not is_limited(m.new))
        self._counters.forget(move.rule for move in moves if move.new is None)
        self._hook(self._networks)

    def _flip(self, moves: Sequence[LimitChange], old_nets: Mapping[str, Limit]) -> None:
        """Run the nftables transaction: every rule of the change moves at once."""
        classes = self._numbers.given
        old = {move.old_key: move.old for move in moves if move.old is not None}
        new = {move.new_key: move.new for move in moves if move.new is not None}
        exceptions = script.with_exceptions(old_nets), script.with_exceptions(self._nets)
        if exceptions[0] != exceptions[1]:
            old = {**{k: v for k, v in self._hosts.items() if k not in new}, **old}
            new = self._hosts
        devices, nets, ranges = self._devices(), self._net_elements, self._ranges
        if old_nets is not self._nets:
            nets, ranges = script.net_elements(self._nets, classes), script.net_ranges(self._nets)
        hosts = [
            script.host_elements(hosts_of(limits), classes, where)
            for limits, where in zip((old, new), exceptions, strict=True)
        ]
        text = script.NETDEV.update(
            {**self._device_elements, **self._net_elements, **hosts[0]},
            {**devices, **nets, **hosts[1]},
        )
        if self._is_counting:
            text += count_script(
                script.count_elements(hosts_of(old), self._ranges),
                script.count_elements(hosts_of(new), ranges),
            )
        before, after = self._places_of_change(moves, old_nets, ranges)
        with self._counters.carried(before, after):
            if text:
                self._nft.run(text)
        self._device_elements, self._net_elements, self._ranges = devices, nets, ranges

    def _apply(self, put: Mapping[str, Limit], drop: Iterable[str]) -> None:
        drop = tuple(drop)
        if any("/" in key for key in (*put, *drop)):
            self._nets = dict(self._nets)  # `change` compares
        for key in drop:
            self._table(key).pop(key, None)
        for key, limit in put.items():
            self._table(key)[key] = limit

    def _limits_of(self, keys: Iterable[str]) -> dict[str, Limit]:
        return {key: table[key] for key in keys if key in (table := self._table(key))}

    def _table(self, key: str) -> dict[str, Limit]:
        return self._nets if "/" in key else self._hosts

    # --- Counting. ----------------------------------------------------------------------

    def counters(self) -> dict[int, RuleCount]:
        """Return the traffic of every rule, by its number, since it came into force. Raises Failed.

        Counts restart at zero when the kernel's do: after a reboot, and after another program
        deleted the class, the set or the device that counted.
        """
        with (
            _told_as_failed("read the rules' counters"),
            NetlinkSocket(uapi.NETLINK_NETFILTER) as netfilter,
        ):
            return self._counters.totals(netfilter, self._places())

    def _places(self) -> Places:
        """Return the present counter of each rule."""
        limits = {**self._hosts, **self._nets}
        return Places.of(limits, self._ranges, self._numbers.given)

    def _places_of_change(
        self, moves: Sequence[LimitChange], old_nets: Mapping[str, Limit], ranges: Mapping[str, int]
    ) -> tuple[Places, Places]:
        """Return the counters, before and after, of the rules whose counter changes."""
        moved = [move for move in moves if move.is_counted_elsewhere]
        has_nets = ranges != self._ranges or any("/" in m.old_key + m.new_key for m in moved)
        old = {m.old_key: m.old for m in moved if m.old is not None}
        new = {m.new_key: m.new for m in moved if m.new is not None}
        if has_nets:
            old, new = {**hosts_of(old), **old_nets}, {**hosts_of(new), **self._nets}
        before, after = (self._ranges, ranges) if has_nets else ({}, {})
        classes = self._numbers.given
        return Places.of(old, before, classes), Places.of(new, after, classes)


def _present_hooks(topology: Topology) -> tuple[Hook, ...]:
    """Return the LAN interfaces that exist."""
    indexes = {name: index for index, name in socket.if_nameindex()}
    networks: dict[str, list[IPv4Network]] = defaultdict(list)
    for lan, network in topology.lan_networks:
        networks[lan].append(network)
    above: dict[str, list[IPv4Network]] = defaultdict(list)
    for lower, upper in topology.stacked:
        above[lower] += networks[upper]
    return tuple(
        Hook(indexes[name], name, tuple(above[name]), tuple(networks[name]) if above[name] else ())
        for name in topology.lans
        if name in indexes
    )


def _present_elements(netfilter: NetlinkSocket) -> Elements:
    """Return the elements of the kernel's sets, in the notation of `script`."""
    present: Elements = {}
    for name in (*script.ADDRESS_SETS, *script.COUNT_SETS):
        found = elements.read(netfilter, name)
        present[name] = {e.key: script.handle_text(e.value) if e.value else "" for e in found}
    for direction in DIRECTIONS:
        trees = elements.read_devices(netfilter, direction.devices)
        present[direction.devices] = {script.handle_text(k): str(i) for k, i in trees.items()}
    return present


@contextmanager
def _told_as_failed(action: str) -> Iterator[None]:
    """Raise the kernel's refusals as Failed."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        raise Failed(action, reason + modules.for_netlink(reason)) from error
