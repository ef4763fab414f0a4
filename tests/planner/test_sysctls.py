"""Kernel parameters."""

import pytest

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


def test_answers_are_taken_from_wherever_clients_leave_whatever_leads_back_to_who_sends_them() -> (
    None
):
    topology = Topology(
        lans=("lan0",), wans=("wan1",), routable=("wan1", "l2tp_1", "docker0", "wg0", "wg1")
    )
    wanted = sysctls.wanted(topology, ["wg0", "lan0"])
    unchecked = {name.split("/")[3] for name in wanted if name.endswith("/rp_filter")}
    assert unchecked == {"all", "default", "wan1", "l2tp_1", "wg0"}


def test_each_limit_of_the_neighbours_is_above_the_one_before() -> None:
    room = sysctls.room(GIB // PAGE)
    for family in ("ipv4", "ipv6"):
        limits = [room[f"net/{family}/neigh/default/gc_thresh{n}"] for n in (1, 2, 3)]
        assert 1_000 < limits[0] < limits[1] < limits[2]
