"""Sentences about conditions around the machine that keep it from serving clients properly:
networks that overlap, missing LANs, multicast that is dropped, hosts that pose as routers.
"""

from __future__ import annotations

from collections.abc import Iterator

from egressd.model.facts import Facts
from egressd.model.wording import Sentence, say
from egressd.netd.kernel import advertisers, multicast
from egressd.planner.topology import Topology, overlaps


def problems(facts: Facts, topology: Topology) -> Iterator[Sentence]:
    """Yield a sentence for each such condition. Raises OSError."""
    for name in topology.missing:
        yield say("lan-missing", name=name)
    for name, network, lan in overlaps(facts, topology):
        yield say("networks-overlap", name=name, network=str(network), lan=lan)
    lans = multicast.destinations() & set(topology.lans)
    if lans and not topology.multicast:
        yield say("multicast-dropped", lans=tuple(sorted(lans)))
    yield from _refused_routers(topology)


def _refused_routers(topology: Topology) -> Iterator[Sentence]:
    for name, router in advertisers.read():
        if name in topology.wans:
            yield say("router-ignored", router=str(router), name=name)
        else:
            yield say("router-poses", router=str(router), name=name)
