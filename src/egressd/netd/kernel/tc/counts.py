"""The traffic that each rule's clients have sent and received, from the kernel's own counters.

A rule is counted by an element of `COUNT_SETS`, or by the class that limits its download (see
`planner.shaping`). When a change gives it another counter, the count of the first is carried over
here.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final, NamedTuple, Protocol, Self

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
    class_at,
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
                limit.number: class_at(classes[limit.number], kbps)
                for limit in limits.values()
                if (kbps := DOWNLOAD.kbps(limit)) and limit.number in classes
            },
        )


NO_PLACES: Final = Places({}, {}, {})


class PassedBy(Protocol):
    """The traffic that bypasses the elements (see `fast_path`). Methods raise OSError."""

    def counts(self, addresses: Iterable[str]) -> Mapping[str, RuleCount]:
        """Return that of hosts with rules of their own, by address."""

    def rule_counts(self, rules: Iterable[int]) -> Mapping[int, RuleCount]:
        """Return that of the clients of CIDR rules, by the rules' numbers."""


class LimitCounters:
    """Reads counts in a network namespace, and carries them over."""

    def __init__(self, downloads: Forest, passed_by: PassedBy | None = None) -> None:
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
        steady = _counted_as_before(before, after)
        with NetlinkSocket(uapi.NETLINK_NETFILTER) as netfilter:
            counted = self._count(netfilter, before, steady)
            yield
            now = self._count(netfilter, after, steady)
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

    def _count(
        self, netfilter: NetlinkSocket, places: Places, left_out: Collection[int] = ()
    ) -> Counts:
        """Return the counts at these places, without what the clients of the CIDR rules `left_out`
        have passed by. Raises OSError.
        """
        counts: Counts = {}
        passed = self._passed(places, left_out)

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
                for key, counted in _counted(netfilter, name, wanted):
                    add(direction, wanted[key], counted)
            for rule, by in passed:
                if rule not in classes:
                    add(direction, rule, _of(direction, by))
            for rule, counted in self._passed_classes(classes):
                # HTB counts link headers too, once for each packet on the wire.
                size = counted.bytes - LINK_HEADER_BYTES * counted.packets
                add(direction, rule, Count(size, counted.packets))
        return counts

    def _passed(self, places: Places, left_out: Collection[int]) -> list[tuple[int, RuleCount]]:
        """Return the traffic that bypasses the elements, by rule number."""
        if self._passed_by is None:
            return []
        hosts = self._passed_by.counts(places.hosts)
        rules = self._passed_by.rule_counts({*places.ranges.values()}.difference(left_out))
        return [*((places.hosts[it], count) for it, count in hosts.items()), *rules.items()]

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


def _counted_as_before(before: Places, after: Places) -> set[int]:
    """Return the CIDR rules of which the traffic that passes by is counted in the same way before a
    change and after it: what passes meanwhile must not be taken for a difference.
    """
    both = {*before.ranges.values()} & {*after.ranges.values()}
    return both.difference(before.classes.keys() ^ after.classes.keys())


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


def _counted(
    netfilter: NetlinkSocket, name: str, wanted: Mapping[str, int]
) -> Iterable[tuple[str, Count]]:
    """Yield the present ones of the elements `wanted`, with their counts."""
    if not wanted:
        return []
    if len(wanted) <= _FEW and name not in RANGE_SETS:
        return elements.count(netfilter, name, wanted)
    found = elements.read(netfilter, name)
    return [(element.key, element.passed) for element in found if element.key in wanted]
