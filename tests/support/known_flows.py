"""The fast path of known flows, read in the kernel of this namespace.

It needs no pytest: a machine with nothing but a package of egressd runs it, too.
"""

from __future__ import annotations

import socket
from ipaddress import IPv4Address

from egressd.model.messages import RuleCount
from egressd.netd.kernel import uapi
from egressd.netd.kernel.ebpf import system
from egressd.netd.kernel.fast_path.elements import COUNT, RULE
from egressd.netd.kernel.fast_path.hooks import Hooks
from egressd.netd.kernel.netlink import NetlinkSocket


def programs_here() -> dict[str, int]:
    """Return the number of the classifier of each interface that has one."""
    hooks = Hooks()
    with NetlinkSocket(uapi.NETLINK_ROUTE) as kernel:
        found = {name: hooks.find(kernel, index) for index, name in socket.if_nameindex()}
    return {name: there for name, there in found.items() if there}


def passed_here(address: str) -> RuleCount:
    """Count the client's traffic on the fast path."""
    return _counted("counts", IPv4Address(address).packed)


def passed_by_rule_here(rule: int) -> RuleCount:
    """Count the traffic of a CIDR rule's clients on the fast path."""
    return _counted("rule_counts", RULE.pack(rule))


def _counted(name: str, key: bytes) -> RuleCount:
    """Return what the first map of that name has for a key; zeros if none has it."""
    for program in programs_here().values():
        maps = {each.name: each for each in system.maps_of(program)}
        if value := maps[name].get(key):
            return RuleCount(*COUNT.unpack(value))
    return RuleCount(0, 0, 0, 0)
