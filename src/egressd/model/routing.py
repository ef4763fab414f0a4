"""Routes and policy rules as values: what the planner wants, and netd makes so.

``str()`` of either gives ip-route(8)'s and ip-rule(8)'s notation.
"""

from __future__ import annotations

from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network
from typing import Literal

import msgspec


class RouteEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A route. A table holds one at most for a destination and metric.

    ``unicast`` and ``local`` need a device; ``unreachable`` has neither device nor gateway.
    """

    table: int
    destination: IPv4Network | IPv6Network
    kind: Literal["unicast", "local", "unreachable"] = "unicast"
    device: str = ""
    """Interface name."""
    gateway: IPv4Address | IPv6Address | None = None
    """Next hop, on the device's own network; None: the destination is."""
    metric: int = 0
    """The lowest is taken. An IPv6 route cannot have 0, for which the kernel would take another."""

    def __str__(self) -> str:
        anywhere = self.destination.prefixlen == 0
        return " ".join(
            (
                *(() if self.kind == "unicast" else (self.kind,)),
                "default" if anywhere else str(self.destination),
                *(("via", str(self.gateway)) if self.gateway else ()),
                *(("dev", self.device) if self.device else ()),
                f"table {self.table}",
                *((f"metric {self.metric}",) if self.metric else ()),
                *(("(IPv6)",) if self.destination.version == 6 else ()),
            )
        )


class PolicyRule(msgspec.Struct, frozen=True, kw_only=True):
    """A policy routing rule. It applies to packets that agree with all of its selectors.

    A selector that is left empty agrees with every packet. ``iif`` need not exist: the rule
    waits for the interface of that name.
    """

    priority: int
    """The lowest comes first."""
    action: Literal["lookup", "prohibit"] = "lookup"
    """``prohibit`` ends the look-up with ICMP *administratively prohibited*."""
    table: int = 0
    """The table that ``lookup`` looks in; if that has no route the next rule is tried."""
    family: Literal[4, 6] = 4
    mark: int = 0
    mask: int = 0
    """Which bits of the packet's mark must equal ``mark``."""
    iif: str = ""
    """Incoming interface; ``lo`` stands for this machine's own packets."""
    uids: tuple[int, int] | None = None
    """First and last user id of the local socket's owner."""
    source: IPv4Address | IPv6Address | None = None

    def __str__(self) -> str:
        return " ".join(
            (
                f"{self.priority}:",
                f"from {self.source or 'all'}",
                *((f"fwmark {self.mark:#x}/{self.mask:#x}",) if self.mask else ()),
                *((f"iif {self.iif}",) if self.iif else ()),
                *((f"uidrange {self.uids[0]}-{self.uids[1]}",) if self.uids else ()),
                f"lookup {self.table}" if self.action == "lookup" else self.action,
                *(("(IPv6)",) if self.family == 6 else ()),
            )
        )
