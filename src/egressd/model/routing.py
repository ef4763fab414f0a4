"""Routes and policy rules as values: made by the planner, put in force by netd."""

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
    """Next hop, on the device's own network; None: the destination is on that network."""
    metric: int = 0
    """The route's metric; the lowest is used. An IPv6 route cannot have 0, which the kernel would
    replace."""

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
    """A policy routing rule. It applies to packets that match all of its selectors.

    An empty selector matches every packet. ``iif`` need not exist: the rule waits for the interface
    of that name.
    """

    priority: int
    """The order of evaluation: the lowest comes first."""
    action: Literal["lookup", "prohibit"] = "lookup"
    """``prohibit`` ends the look-up with ICMP *administratively prohibited*."""
    table: int = 0
    """The table that ``lookup`` searches; if it has no route, the next rule is tried."""
    family: Literal[4, 6] = 4
    mark: int = 0
    mask: int = 0
    """The bits of the packet's mark that must equal ``mark``."""
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
