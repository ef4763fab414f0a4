"""Kernel parameters."""

from ipaddress import IPv4Interface

import pytest

from egressd.model.facts import Facts, Interface
from egressd.planner import sysctls
from egressd.planner.topology import Topology

GIB = 1 << 30
PAGE = 4096


@pytest.mark.parametrize(
    ("memory", "flows"), [(GIB // 2, 131_072), (GIB, 262_144), (8 * GIB, 262_144)]
)
def test_flows_find_room_in_a_small_machine_too(memory: int, flows: int) -> None:
    room = sysctls.room(memory // PAGE)
    assert room["net/netfilter/nf_conntrack_max"] == flows
    assert flows * 320 <= memory / 12


def test_each_limit_of_the_neighbours_is_above_the_one_before() -> None:
    room = sysctls.room(GIB // PAGE)
    for family in ("ipv4", "ipv6"):
        limits = [room[f"net/{family}/neigh/default/gc_thresh{n}"] for n in (1, 2, 3)]
        assert 1_000 < limits[0] < limits[1] < limits[2]


def test_what_comes_in_by_an_interface_is_forwarded_once_it_has_been_seen() -> None:
    address = (IPv4Interface("10.0.0.1/24"),)
    facts = Facts(
        interfaces={
            "lan0": Interface(name="lan0", index=2),
            "wan1": Interface(name="wan1", index=3, addresses=address),
            "docker0": Interface(name="docker0", index=4, addresses=address),
            "new0": Interface(name="new0", index=5),
        }
    )
    assert sysctls.forwarding(facts, Topology(wans=("wan1",))) == frozenset()
    found = sysctls.forwarding(facts, Topology(lans=("lan0", "lan1"), wans=("wan1",)))
    assert found == {"lan0", "lan1", "wan1", "docker0"}
