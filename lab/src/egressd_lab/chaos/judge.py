"""The judge: checks every captured token against the exits that its client had at the time.

A flood's token stands for one client in one period. When a client's rule changes, its token changes
too once the answer has come. So no clock is needed to judge packets that were sent after the
answer: a new token on the old way out is a breach. Packets that left before the answer are judged
by the kernel's time stamps: the new way out is allowed from the request on, the old one until
shortly after the answer.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from egressd_lab.observed import Flow

LATE_NS: Final = 300_000_000
"""Nanoseconds after a change's answer for which an engine and a node may still hold
older packets.
"""


class Era(msgspec.Struct, kw_only=True):
    """One token of one client. Exits are the addresses it may be seen with outside."""

    client: str
    token: str
    exits: frozenset[str]
    next_exits: frozenset[str] = frozenset()
    changing_ns: int = 0
    """The time when a change was requested; 0 for none."""
    changed_ns: int = 0
    """The time when it had been answered, or its outcome was known."""

    def begin_change(self, exits: frozenset[str], now_ns: int) -> None:
        """Allow `exits` too from now on."""
        self.next_exits = exits
        self.changing_ns = now_ns

    def end_change(self, now_ns: int) -> None:
        """Note that the change has been answered: the exits that it removes are no
        longer allowed.
        """
        self.changed_ns = now_ns

    def fault(self, exit_: str, first_ns: int, last_ns: int) -> str:
        """Return the fault of packets that left by `exit_` in that time, or an empty string."""
        if exit_ in self.exits:
            is_left = self.changing_ns and exit_ not in self.next_exits
            if is_left and self.changed_ns and last_ns > self.changed_ns + LATE_NS:
                late = (last_ns - self.changed_ns) / 1e6
                return f"left by {exit_} {late:.0f} ms after another way out was in force"
            return ""
        if exit_ in self.next_exits and first_ns >= self.changing_ns:
            return ""
        allowed = ", ".join(sorted(self.exits)) or "none"
        return f"left by {exit_}; its ways out were {allowed}"


class Breach(msgspec.Struct, frozen=True, kw_only=True):
    """A promise that was not kept."""

    promise: str
    what: str
    packets: int = 0


class Judge:
    """Checks captures against eras.

    `wans` and `nodes`: interface at the internet -> address. `lines`: address of a VPN server among
    `nodes` -> the address that the internet sees its clients by.
    """

    def __init__(
        self,
        wans: Mapping[str, str],
        nodes: Mapping[str, str],
        lines: Mapping[str, str] | None = None,
    ) -> None:
        self._wans = wans
        self._nodes = nodes
        self._exits = {address: (lines or {}).get(address, address) for address in nodes.values()}
        self._first_wan = next(iter(wans))
        self.eras: dict[str, Era] = {}

    def judge(self, flows: Iterable[Flow]) -> list[Breach]:
        """Return every breach among the flows. Unknown tokens are ignored."""
        return [breach for flow in flows if (breach := self._breach(flow) or self._stray(flow))]

    def own(self, flows: Iterable[Flow]) -> int:
        """Return the number of packets that the machine itself sent about flows: ICMP errors."""
        return sum(
            flow.packets
            for flow in flows
            if flow.protocol == "icmp" and flow.source in self._wans.values() and not flow.token
        )

    def _stray(self, flow: Flow) -> Breach | None:
        """Return a breach if a packet with a WAN's address came by another WAN. It concerns the
        machine's own resets, errors and answers, which carry no token.
        """
        if flow.outgoing or flow.source not in self._wans.values():
            return None
        if self._wans.get(flow.interface, flow.source) == flow.source:
            return None
        packet = f"{flow.protocol} {flow.source} > {flow.destination}:{flow.port}"
        what = f"the machine's own packet left by another WAN ({packet} on {flow.interface})"
        return Breach(promise="P1", what=what, packets=flow.packets)

    def _breach(self, flow: Flow) -> Breach | None:
        era = self.eras.get(flow.token)
        if era is None:
            return None
        exit_, odd = self._exit(flow)
        fault = odd or era.fault(exit_, flow.first_ns, flow.last_ns)
        if not fault:
            return None
        packet = f"{flow.protocol} {flow.source} > {flow.destination}:{flow.port}"
        what = f"{era.client} {fault} ({packet} on {flow.interface}, {era.token})"
        return Breach(promise="P1", what=what, packets=flow.packets)

    def _exit(self, flow: Flow) -> tuple[str, str]:
        """Return the address that the flow left with, and a fault that it has for any sender."""
        ends = {flow.source, flow.destination}
        if flow.interface in self._nodes:
            return self._exits[self._nodes[flow.interface]], ""
        if flow.interface not in self._wans:
            return "", f"was seen on {flow.interface}"
        wan = self._wans[flow.interface]
        if wan not in ends:
            return wan, f"was seen on {flow.interface} with a foreign address"
        if node := ends & self._exits.keys():
            odd = "" if flow.interface == self._first_wan else "reached a node by another WAN"
            return self._exits[next(iter(node))], odd
        return wan, ""
