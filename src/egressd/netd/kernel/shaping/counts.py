"""How much each rule's clients have sent and received, from the kernel's own counters.

A limited rule is counted by its class, any other by its element (see `planner.shaping`).
When a rule goes from one to the other, the first one's count is kept here and added.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from egressd.netd.kernel.netlink import NetlinkSocket
from egressd.netd.kernel.shaping import elements
from egressd.netd.kernel.shaping.forest import Forest
from egressd.netd.kernel.shaping.messages import Count
from egressd.planner.shaping import DIRECTIONS, DOWNLOAD, LINK_HEADER_BYTES, Direction


class RuleCount(NamedTuple):
    """The traffic of a rule's clients, in bytes of IP packets and in packets.

    Of limited rules what got through is counted; of others, packets that the network card
    or the kernel had joined to one (GRO) count as one.
    """

    up_bytes: int
    up_packets: int
    down_bytes: int
    down_packets: int


class Ledger:
    """Sums what elements and classes have counted, now and in earlier places."""

    def __init__(self) -> None:
        self._earlier: dict[tuple[str, int], Count] = {}
        """Direction and rule number -> what was counted where the rule is counted no more."""

    def keep_class(self, direction: Direction, rule: int, forest: Forest, number: int) -> None:
        """Before the rule's class goes: keep its count. Raises OSError."""
        self._keep(direction, rule, _of_class(forest.count(number)))

    def keep_host(
        self, direction: Direction, rule: int, netfilter: NetlinkSocket, address: str
    ) -> None:
        """Before an unlimited host's element goes: keep its count. Raises OSError."""
        counted = elements.count(netfilter, direction.free_hosts, address)
        self._keep(direction, rule, _of_element(direction, counted))

    def keep_nets(
        self, direction: Direction, ranges: Mapping[str, int], netfilter: NetlinkSocket
    ) -> None:
        """Before the elements of unlimited ranges are made anew: keep all their counts.

        `ranges`: range -> the rule whose it is. Raises OSError.
        """
        for element in elements.read(netfilter, direction.free_nets):
            if element.key in ranges:
                self._keep(direction, ranges[element.key], _of_element(direction, element.passed))

    def forget(self, rules: Iterable[int]) -> None:
        """Keep nothing for rules that are gone."""
        for rule in rules:
            for direction in DIRECTIONS:
                self._earlier.pop((direction.name, rule), None)

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
        totals: dict[int, list[int]] = defaultdict(lambda: [0, 0, 0, 0])

        def add(place: int, rule: int | None, counted: Count) -> None:
            if rule is not None:
                totals[rule][place] += counted.bytes
                totals[rule][place + 1] += counted.packets

        for place, direction in zip((0, 2), DIRECTIONS, strict=True):
            for number, counted in forests[direction].counts():
                add(place, classes.get(number), _of_class(counted))
            for rules, name in ((hosts, direction.free_hosts), (ranges, direction.free_nets)):
                for element in elements.read(netfilter, name):
                    add(place, rules.get(element.key), _of_element(direction, element.passed))
            for rule in {*classes.values(), *hosts.values(), *ranges.values()}:
                add(place, rule, self._earlier.get((direction.name, rule), Count(0, 0)))
        return {rule: RuleCount(*total) for rule, total in totals.items()}

    def _keep(self, direction: Direction, rule: int, counted: Count) -> None:
        before = self._earlier.get((direction.name, rule), Count(0, 0))
        self._earlier[direction.name, rule] = Count(
            before.bytes + counted.bytes, before.packets + counted.packets
        )


def _of_class(counted: Count) -> Count:
    """HTB counts link headers: one for each packet on the wire."""
    return Count(counted.bytes - LINK_HEADER_BYTES * counted.packets, counted.packets)


def _of_element(direction: Direction, counted: Count) -> Count:
    """The egress hook sees packets with their link header, the ingress hook without."""
    if direction is not DOWNLOAD:
        return counted
    return Count(counted.bytes - LINK_HEADER_BYTES * counted.packets, counted.packets)
