"""How much each rule's clients have sent and received, from the kernel's own counters.

A limited rule is counted by its class, any other by its element (see `planner.shaping`).
When a rule goes from one to the other, the first one's count is kept here and added.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from egressd.model.messages import RuleCount
from egressd.netd.kernel.netlink import NetlinkSocket
from egressd.netd.kernel.shaping import elements
from egressd.netd.kernel.shaping.forest import Forest
from egressd.netd.kernel.shaping.messages import Count
from egressd.planner.shaping import DIRECTIONS, DOWNLOAD, LINK_HEADER_BYTES, UPLOAD, Direction

_PLACES: Final = {UPLOAD: 0, DOWNLOAD: 2}
"""Where a direction's bytes stand in a `RuleCount`, its packets behind them."""


class Ledger:
    """Sums what elements and classes have counted, now and in earlier places."""

    def __init__(self) -> None:
        self._earlier: dict[tuple[Direction, int], Count] = {}
        """Direction and rule number -> what was counted where the rule is counted no more."""

    def keep_class(self, direction: Direction, rule: int, forest: Forest, number: int) -> None:
        """Before the rule's class goes: keep its count. Raises OSError."""
        self._keep(direction, rule, forest.count(number), LINK_HEADER_BYTES)

    def keep_host(
        self, direction: Direction, rule: int, netfilter: NetlinkSocket, address: str
    ) -> None:
        """Before an unlimited host's element goes: keep its count. Raises OSError."""
        counted = elements.count(netfilter, direction.free_hosts, address)
        self._keep(direction, rule, counted, _element_header(direction))

    def keep_nets(
        self, direction: Direction, ranges: Mapping[str, int], netfilter: NetlinkSocket
    ) -> None:
        """Before the elements of unlimited ranges are made anew: keep all their counts.

        `ranges`: range -> the rule whose it is. Raises OSError.
        """
        for element in elements.read(netfilter, direction.free_nets):
            if element.key in ranges:
                rule = ranges[element.key]
                self._keep(direction, rule, element.passed, _element_header(direction))

    def forget(self, rules: Iterable[int]) -> None:
        """Keep nothing for rules that are gone."""
        for rule in rules:
            for direction in DIRECTIONS:
                self._earlier.pop((direction, rule), None)

    def read(
        self,
        forests: Mapping[Direction, Forest],
        netfilter: NetlinkSocket,
        *,
        classes: Mapping[int, int],
        hosts: Mapping[str, int],
        ranges: Mapping[str, int],
    ) -> dict[int, RuleCount]:
        """Everything, by rule number: those of `classes` (by class number), `hosts`, `ranges`.

        Raises OSError.
        """
        rules = {*classes.values(), *hosts.values(), *ranges.values()}
        totals = {rule: [0, 0, 0, 0] for rule in rules}

        def add(place: int, rule: int | None, counted: Count, header_bytes: int = 0) -> None:
            if rule in totals:
                total = totals[rule]
                total[place] += counted.bytes - header_bytes * counted.packets
                total[place + 1] += counted.packets

        for direction, place in _PLACES.items():
            for number, counted in forests[direction].counts():
                add(place, classes.get(number), counted, LINK_HEADER_BYTES)
            header = _element_header(direction)
            for keys, name in ((hosts, direction.free_hosts), (ranges, direction.free_nets)):
                for element in elements.read(netfilter, name):
                    add(place, keys.get(element.key), element.passed, header)
        for (direction, rule), counted in self._earlier.items():
            add(_PLACES[direction], rule, counted)
        return {rule: RuleCount(*total) for rule, total in totals.items()}

    def _keep(self, direction: Direction, rule: int, counted: Count, header_bytes: int) -> None:
        before = self._earlier.get((direction, rule), Count(0, 0))
        self._earlier[direction, rule] = Count(
            before.bytes + counted.bytes - header_bytes * counted.packets,
            before.packets + counted.packets,
        )


def _element_header(direction: Direction) -> int:
    """How much of a link header elements count: the egress hook sees packets with it, the
    ingress hook without. (HTB always counts it, once for each packet on the wire.)"""
    return LINK_HEADER_BYTES if direction is DOWNLOAD else 0
