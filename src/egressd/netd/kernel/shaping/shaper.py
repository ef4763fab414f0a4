"""Makes speed limits so, changes them one by one, and heals what others did to them.

The order within a change: classes come before the elements that lead to them and go after,
so that no packet is ever led to a class that isn't there (it would pass unlimited).
"""

from __future__ import annotations

import socket
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from ipaddress import IPv4Network
from typing import Final, NamedTuple

import structlog

from egressd.model.errors import Failed
from egressd.model.messages import RuleCount
from egressd.model.plan import Limit, Patch
from egressd.netd.kernel.netlink import NETFILTER, ROUTE, NetlinkSocket
from egressd.netd.kernel.nft import Nft
from egressd.netd.kernel.shaping import device, elements
from egressd.netd.kernel.shaping.counts import Ledger
from egressd.netd.kernel.shaping.forest import Forest
from egressd.netd.kernel.shaping.numbers import ClassNumbers
from egressd.planner import shaping as script
from egressd.planner.nft import Elements
from egressd.planner.shaping import (
    DIRECTIONS,
    FRAME_BYTES,
    PACKET_BYTES,
    Direction,
    Hook,
    is_limited,
)
from egressd.planner.topology import Topology

log = structlog.get_logger()

_VLAN_TAG_BYTES: Final = 4


class Shaper:
    """The speed limits of this network namespace.

    Not to be shared between threads at the same time. Methods block: `change` for 0.2 ms a
    rule, `sync` and `counters` for half a second at 10,000 rules.
    """

    def __init__(self, nft: Nft) -> None:
        self._nft = nft
        self._route = NetlinkSocket(ROUTE)
        self._forests = {d: Forest(self._route, d.device) for d in DIRECTIONS}
        self._ledger = Ledger()
        self._numbers = ClassNumbers()
        self._hosts: dict[str, Limit] = {}
        self._nets: dict[str, Limit] = {}
        self._ranges: dict[str, int] = {}
        """Range of CIDR rules -> number of the rule that has it."""
        self._net_elements: Elements = {}
        self._device_elements: Elements = {}
        self._local: Elements = {}
        self._hooks: tuple[Hook, ...] = ()
        self._networks: tuple[IPv4Network, ...] = ()
        self._frame = 0
        self._rules: list[bytes] = []
        """The table's rules as they were after they were loaded last."""

    @property
    def port(self) -> int:
        """The netlink port that announcements of our own changes bear."""
        return self._route.port

    @property
    def devices(self) -> frozenset[int]:
        """The indexes of our devices, as of the last look."""
        return frozenset(i for forest in self._forests.values() for i in forest.devices.values())

    def close(self) -> None:
        """Let go of the kernel. All limits stay in force."""
        self._route.close()

    # --- Converging. --------------------------------------------------------------------

    def sync(self, limits: Mapping[str, Limit], topology: Topology) -> int:
        """Make the limits just these, from whatever there is; how much was not as it should be.

        Repeat-safe: what is right is left alone, with its counts and the packets that wait in
        it. Classes that an earlier netd gave to rules stay theirs. Raises Failed.
        """
        self._hosts = _hosts(limits)
        self._nets = {key: limit for key, limit in limits.items() if "/" in key}
        self._local = script.local_elements(topology)
        places = _present_hooks(topology), script.lan_networks(topology)
        if places != (self._hooks, self._networks):
            self._hooks, self._networks = places
            self._rules = []  # they are for other places
        with _told_as_failed("set speed limits"):
            self._fit(topology)
            return self._converge()

    def look(self, topology: Topology) -> int:
        """Adapt to the interfaces and addresses there are now, and heal what is plainly broken.

        O(1) in the number of limits while nothing is: to be called whenever something
        about the machine's network changed, and now and then. As `sync` otherwise.
        """
        local = script.local_elements(topology)
        hooks, networks = _present_hooks(topology), script.lan_networks(topology)
        with _told_as_failed("look after speed limits"):
            if not self._is_intact():
                return self.sync({**self._hosts, **self._nets}, topology)
            self._fit(topology)
            text = script.update(self._local, local)
            if (hooks, networks) != (self._hooks, self._networks):
                text += script.chains(hooks, networks, elements.base_chains())
            if text:
                self._nft.run(text)
                self._local, self._hooks, self._networks = local, hooks, networks
                self._rules = elements.rules()
            return bool(text)

    def remove(self) -> None:
        """Take everything of ours away: nobody is limited or counted any more. Raises Failed."""
        with _told_as_failed("remove speed limits"):
            self._nft.run(script.remove())
            for forest in self._forests.values():
                forest.clear()

    def _converge(self) -> int:
        with NetlinkSocket(NETFILTER) as netfilter:
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
            rates = {classes[lim.number]: kbps for lim in limits if (kbps := direction.kbps(lim))}
            put, left_over[forest] = forest.converge({n: script.shape(k) for n, k in rates.items()})
            healed += put
        self._ranges = script.net_ranges(self._nets)
        self._net_elements = script.net_elements(self._nets, classes)
        hosts = script.host_elements(self._hosts, classes)
        text = ""
        if not self._has_rules():
            text = script.chains(self._hooks, self._networks, elements.base_chains())
        self._device_elements = self._devices()
        wanted = {**self._device_elements, **self._local, **hosts, **self._net_elements}
        text += script.update(present, wanted)
        if text:
            self._nft.run(text)
            self._rules = elements.rules()
            healed += 1
        healed += sum(forest.prune(unwanted) for forest, unwanted in left_over.items())
        self._numbers.take_back(gone)
        return healed

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
        """Rule number -> class number, as far as the kernel's maps tell."""
        rules = {key: limit.number for key, limit in self._hosts.items()}
        rules.update(script.net_ranges(self._nets))
        found: dict[int, int] = {}
        for name in (name for d in DIRECTIONS for name in (d.hosts, d.nets)):
            for key, value in present[name].items():
                if key in rules:
                    found.setdefault(rules[key], script.class_number(int(value, 16)))
        return found

    # --- Changing. ----------------------------------------------------------------------

    def change(self, patch: Patch[Limit]) -> None:
        """Put `patch` in force, or raise Failed and leave the limits as they were.

        Costs what the patch is long, and O(CIDR rules) if one of those is in it.
        """
        self._numbers.give(limit.number for limit in patch.put.values() if is_limited(limit))
        old = self._limits_of([*patch.put, *patch.drop])
        try:
            self._apply(patch.put, patch.drop)
            try:
                self._carry_out(_moves(old, patch.put))
            except (Failed, OSError) as error:
                log.warning("limits were changed by someone else; reading all", error=str(error))
                with _told_as_failed("change speed limits"):
                    self._converge()
        except Failed:
            self._apply(old, [key for key in patch.put if key not in old])
            with suppress(Failed, OSError):
                self._converge()
            raise

    def _carry_out(self, moves: Sequence[_Move]) -> None:
        classes = self._numbers.given
        for direction, forest in self._forests.items():
            forest.open(classes[move.rule] for move in moves if move.kbps(direction)[1])
            for move in moves:
                old, new = move.kbps(direction)
                if new and new != old:
                    forest.put(classes[move.rule], script.shape(new), is_new=not old)
        self._flip(moves)
        for direction, forest in self._forests.items():
            for move in moves:
                old, new = move.kbps(direction)
                if old and not new:
                    if move.new is not None:
                        self._ledger.keep_class(direction, move.rule, forest, classes[move.rule])
                    forest.drop(classes[move.rule])
        self._numbers.take_back(m.rule for m in moves if m.new is None or not is_limited(m.new))
        self._ledger.forget(move.rule for move in moves if move.new is None)

    def _flip(self, moves: Sequence[_Move]) -> None:
        """The nftables transaction: every rule of the change moves at once."""
        classes = self._numbers.given
        old = {move.old_key: move.old for move in moves if move.old is not None}
        new = {move.new_key: move.new for move in moves if move.new is not None}
        devices = self._devices()
        known = {**self._device_elements, **script.host_elements(_hosts(old), classes)}
        wanted = {**devices, **script.host_elements(_hosts(new), classes)}
        nets, ranges = self._net_elements, self._ranges
        if any("/" in key for key in (*old, *new)):
            nets, ranges = script.net_elements(self._nets, classes), script.net_ranges(self._nets)
            known, wanted = {**known, **self._net_elements}, {**wanted, **nets}
        self._keep_counts(moves, nets)
        if text := script.update(known, wanted):
            self._nft.run(text)
        self._device_elements, self._net_elements, self._ranges = devices, nets, ranges

    def _keep_counts(self, moves: Sequence[_Move], nets: Elements) -> None:
        """Before elements go: keep what they counted for rules that live on."""
        with NetlinkSocket(NETFILTER) as netfilter:
            for direction in DIRECTIONS:
                for move in moves:
                    if move.leaves_element(direction):
                        self._ledger.keep_host(direction, move.rule, netfilter, move.old_key)
                name = direction.free_nets
                if nets[name] != self._net_elements[name]:
                    self._ledger.keep_nets(direction, self._ranges, netfilter)

    def _apply(self, put: Mapping[str, Limit], drop: Iterable[str]) -> None:
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
        """The traffic of every rule, by its number, since it is in force. Raises Failed.

        Counts begin at zero again when the kernel's do: after a restart, and after
        another program deleted the class, the set or the device that counted.
        """
        with _told_as_failed("read the rules' counters"), NetlinkSocket(NETFILTER) as netfilter:
            return self._ledger.read(
                self._forests,
                netfilter,
                classes={number: rule for rule, number in self._numbers.given.items()},
                hosts={address: limit.number for address, limit in self._hosts.items()},
                ranges=self._ranges,
            )


class _Move(NamedTuple):
    """What a change does to one rule."""

    rule: int
    old_key: str
    old: Limit | None
    """None for a rule that is new."""
    new_key: str
    new: Limit | None
    """None for one that goes."""

    def kbps(self, direction: Direction) -> tuple[int, int]:
        """The limit in one direction, before and after; 0 is none."""
        old = 0 if self.old is None else direction.kbps(self.old)
        return old, 0 if self.new is None else direction.kbps(self.new)

    def leaves_element(self, direction: Direction) -> bool:
        """Whether it lives on, and the element of its one address counts for it no more."""
        old, new = self.kbps(direction)
        lives_on = self.old is not None and self.new is not None
        counts_on = self.new_key == self.old_key and not new
        return lives_on and not old and "/" not in self.old_key and not counts_on


def _moves(old: Mapping[str, Limit], new: Mapping[str, Limit]) -> list[_Move]:
    """What becomes of each rule, told apart by number: it may have another address now."""
    before = {limit.number: (key, limit) for key, limit in old.items()}
    after = {limit.number: (key, limit) for key, limit in new.items()}
    nothing = ("", None)
    return [
        _Move(rule, *before.get(rule, nothing), *after.get(rule, nothing))
        for rule in {**before, **after}
    ]


def _hosts(limits: Mapping[str, Limit]) -> dict[str, Limit]:
    return {key: limit for key, limit in limits.items() if "/" not in key}


def _present_hooks(topology: Topology) -> tuple[Hook, ...]:
    """The LAN interfaces that are there."""
    indexes = {name: index for index, name in socket.if_nameindex()}
    return tuple(Hook(indexes[name], name) for name in topology.lans if name in indexes)


def _present_elements(netfilter: NetlinkSocket) -> Elements:
    """What is in the kernel's sets, in the words of `script`."""
    present: Elements = {}
    for name in script.ADDRESS_SETS:
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
        raise Failed(action, error.strerror or str(error)) from error
