"""Sentences about conditions around the machine that keep it from serving clients properly:
networks that overlap, missing LANs, multicast that is dropped, hosts that pose as routers.
"""

from __future__ import annotations

from collections.abc import Iterator

from egressd.model.facts import Facts
from egressd.netd.kernel import advertisers, multicast
from egressd.planner.topology import Topology, overlaps


def problems(facts: Facts, topology: Topology) -> Iterator[str]:
    """Yield a sentence for each such condition. Raises OSError."""
    for name in topology.missing:
        yield (
            f"the configuration's LAN {name} is not there, or has no address: what comes in by"
            " interfaces that may be it under another name is not forwarded"
        )
    for name, network, lan in overlaps(facts, topology):
        yield (
            f"{name} has the network {network}, which overlaps that of {lan}: what is for the"
            " one goes to the other, so clients may be blocked; give one of them another"
            " network"
        )
    lans = multicast.destinations() & set(topology.lans)
    if lans and not topology.multicast:
        yield (
            f"another program routes multicast to {', '.join(sorted(lans))}, and it is dropped:"
            " to let it in, set [lan] multicast = true in the configuration"
        )
    yield from _refused_routers(topology)


def _refused_routers(topology: Topology) -> Iterator[str]:
    for name, router in advertisers.read():
        if name in topology.wans:
            yield (
                f"the IPv6 router {router} of {name} is not listened to, since that is LAN and"
                " WAN at once and a client could pose as it: if it is yours, set"
                f' [wan] gateways6 = {{ {name} = "{router}" }} in the configuration'
            )
        else:
            yield (
                f"{router} poses as an IPv6 router behind {name}: this machine does not listen"
                " to it, but what clients send by it goes past their rules"
            )
