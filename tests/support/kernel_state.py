"""The state of a host's kernel that egressd changes, before its first start and after its
removal.
"""

from __future__ import annotations

import re
import sys
from typing import Final

from egressd_lab.host import Host

RULESET: Final = "nft list ruleset"
LISTS: Final = (
    "ip -4 rule",
    "ip -6 rule",
    "ip -4 route show table all",
    "ip -6 route show table all",
    "tc qdisc show",
    "ip -brief link",
)
PARAMETERS: Final = (
    "cd /proc/sys; grep -rs . net | grep -v -e nf_conntrack_count -e core/xfrm_acq_expires"
)
"""All of the network's; the second left out is set by the daemon of Debian's strongswan, which apt
starts."""
ATTACHED: Final = """\
import socket
from egressd.netd.kernel import uapi
from egressd.netd.kernel.ebpf import system
for index, name in socket.if_nameindex():
    for place in (uapi.BPF_TCX_INGRESS, uapi.BPF_TCX_EGRESS):
        try:
            print(name, system.attached(index, place))
        except OSError as error:
            print(name, error.errno)
"""
CHANGING: Final = re.compile(r" expires \d+sec")


def kernel_state(host: Host, ruleset: str | None = None) -> dict[str, list[str]]:
    """Return the sorted lines of each kind of state. `ruleset` is nftables', as a program of the
    host's own release lists it: an older one may not understand what a newer one has made.
    """
    found = {each: host.run(*each.split()).stdout for each in LISTS}
    found[RULESET] = host.run(*RULESET.split()).stdout if ruleset is None else ruleset
    found["parameters"] = host.run("sh", "-c", PARAMETERS).stdout
    found["attached"] = host.run(sys.executable, "-c", ATTACHED).stdout
    return {name: sorted(CHANGING.sub("", text).splitlines()) for name, text in found.items()}


def changes(before: dict[str, list[str]], now: dict[str, list[str]]) -> dict[str, list[str]]:
    """Return what differs, by kind. Parameters of modules that were loaded meanwhile are left
    out.
    """
    known = {line.partition(":")[0] for line in before["parameters"]}
    parameters = [it for it in now["parameters"] if it.partition(":")[0] in known]
    now = {**now, "parameters": parameters}
    return {
        kind: sorted(set(before[kind]) ^ set(now[kind]))
        for kind in before
        if before[kind] != now[kind]
    }
