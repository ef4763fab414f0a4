"""The traffic that each rule's clients have sent and received, from the kernel's own counters.

A rule is counted by an element of `COUNT_SETS`, or by the class that limits its download (see
`planner.shaping`). When a change gives it another counter, the count of the first is carried over
here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final, NamedTuple, Self

from egressd.model.messages import RuleCount
from egressd.model.plan import Limit
from egressd.netd.kernel import uapi
from egressd.netd.kernel.netlink import NetlinkSocket
from egressd.netd.kernel.tc import elements
from egressd.netd.kernel.tc.forest import Forest
from egressd.netd.kernel.tc.messages import Count
from egressd.netd.kernel.tc.moves import hosts_of
from egressd.planner.nft import INET
from egressd.planner.sets import Elements
from egressd.planner.shaping import (
    DIRECTIONS,
    DOWNLOAD,
    LINK_HEADER_BYTES,
    RANGE_SETS,
    Direction,
)

_FEW: Final = 64
"""Number of elements or classes up to which they are requested one by one (20 µs each); for more,
all are read."""

_NOTHING: Final = Count(0, 0)

Counts = dict[tuple[Direction, int], Count]
"""Direction and rule number -> bytes and packets."""


class Places(NamedTuple):
    """The counters of rules, each rule given by its number."""

    hosts: Mapping[str, int]
    """Address -> rule."""
    ranges: Mapping[str, int]
    """Range -> the rule that has it."""
    classes: Mapping[int, int]
    """Rule -> its class, for rules with a download limit."""

    @classmethod
    def of(
        cls, limits: Mapping[str, Limit], ranges: Mapping[str, int], classes: Mapping[int, int]
    ) -> Self:
        """Return the counters of the rules of `limits`. `classes`: those of all limited rules."""
        return cls(
            {address: limit.number for address, limit in hosts_of(limits).items()},
            ranges,
            {
                limit.number: classes[limit.number]
                for limit in limits.values()
                if DOWNLOAD.kbps(limit) and limit.number in classes
            },
        )


NO_PLACES: Final = Places({}, {}, {})

PassedBy = Callable[[Iterable[str]], Mapping[str, RuleCount]]
"""Addresses -> the traffic of these hosts that bypasses the elements (see `fast_path`). Raises
OSError."""


def nothing_passed_by(_: Iterable[str]) -> Mapping[str, RuleCount]:
    """Return no traffic: none bypasses the elements."""
    return {}


class LimitCounters:
    """Reads counts in a network namespace, and carries them over."""

    def __init__(self, downloads: Forest, passed_by: PassedBy = nothing_passed_by) -> None:
        self._downloads = downloads
        self._passed_by = passed_by
        self._earlier: Counts = {}
        """Counts from places where the rule is no longer counted."""

    @contextmanager
    def carried(self, before: Places, after: Places) -> Iterator[None]:
        """Carry over the counts of rules whose counters are `before` ahead of the block, and
        `after` behind it.
        """
        if not any(before):
            yield
            return
        with NetlinkSocket(uapi.NETLINK_NETFILTER) as netfilter:
            counted = self._count(netfilter, before)
            yield
            now = self._count(netfilter, after)
        for key, count in counted.items():
            earlier = self._earlier.get(key, _NOTHING).plus(count)
            self._earlier[key] = earlier.minus(now.get(key, _NOTHING))

    def forget(self, rules: Iterable[int]) -> None:
        """Drop the carried counts of rules that are gone."""
        for rule in rules:
            for direction in DIRECTIONS:
                self._earlier.pop((direction, rule), None)

    def totals(self, netfilter: NetlinkSocket, places: Places) -> dict[int, RuleCount]:
        """Return all traffic that rules have sent and received, by rule number. Raises OSError."""
        now = self._count(netfilter, places)
        totals = {}
        for rule in {*places.hosts.values(), *places.ranges.values()}:
            sent, received = (
                now.get((d, rule), _NOTHING).plus(self._earlier.get((d, rule), _NOTHING))
                for d in DIRECTIONS
            )
            totals[rule] = RuleCount(*sent, *received)
        return totals

    def _count(self, netfilter: NetlinkSocket, places: Places) -> Counts:
        """Return the counts at these places. Raises OSError."""
        counts: Counts = {}
        passed_by = self._passed_by(places.hosts)

        def add(direction: Direction, rule: int, counted: Count) -> None:
            before = counts.get((direction, rule), _NOTHING)
            counts[direction, rule] = before.plus(counted)

        for direction in DIRECTIONS:
            classes = places.classes if direction is DOWNLOAD else {}
            for name, keys in (
                (direction.counted_hosts, places.hosts),
                (direction.counted_nets, places.ranges),
            ):
                wanted = {key: rule for key, rule in keys.items() if rule not in classes}
                for key, counted in _passed(netfilter, name, wanted):
                    add(direction, wanted[key], counted)
            for address, passed in passed_by.items():
                if (rule := places.hosts[address]) not in classes:
                    add(direction, rule, _of(direction, passed))
            for rule, counted in self._passed_classes(classes):
                # HTB counts link headers too, once for each packet on the wire.
                size = counted.bytes - LINK_HEADER_BYTES * counted.packets
                add(direction, rule, Count(size, counted.packets))
        return counts

    def _passed_classes(self, classes: Mapping[int, int]) -> Iterable[tuple[int, Count]]:
        if len(classes) <= _FEW:
            return [
                (rule, self._downloads.count(number))
                for rule, number in classes.items()
                if self._downloads.has_device_of(number)  # the kernel may have refused it
            ]
        rules = {number: rule for rule, number in classes.items()}
        counted = self._downloads.counts()
        return [(rules[number], passed) for number, passed in counted if number in rules]


def _of(direction: Direction, passed: RuleCount) -> Count:
    if direction is DOWNLOAD:
        return Count(passed.down_bytes, passed.down_packets)
    return Count(passed.up_bytes, passed.up_packets)


def count_script(before: Elements, after: Elements) -> str:
    """Return the nftables script that changes the counting sets from one state to the other; empty
    if nothing differs.
    """
    text = INET.update(before, after)
    return "\n".join([*INET.ensure(after), text]) if text else ""


def _passed(
    netfilter: NetlinkSocket, name: str, wanted: Mapping[str, int]
) -> Iterable[tuple[str, Count]]:
    """Yield the present ones of the elements `wanted`, with their counts."""
    if not wanted:
        return []
    if len(wanted) <= _FEW and name not in RANGE_SETS:
        return elements.count(netfilter, name, wanted)
    found = elements.read(netfilter, name)
    return [(element.key, element.passed) for element in found if element.key in wanted]
