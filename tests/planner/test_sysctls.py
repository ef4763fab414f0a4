"""Kernel parameters."""

from ipaddress import IPv6Address

import pytest

from egressd.planner import sysctls
from egressd.planner.topology import Topology

GIB = 1 << 30
PAGE = 4096


@pytest.mark.parametrize(
    ("memory", "flows"), [(GIB // 2, 131_072), (GIB, 262_144), (8 * GIB, 262_144)]
)
def test_conntrack_takes_at_most_a_twelfth_of_the_memory(memory: int, flows: int) -> None:
    room = sysctls.room(memory // PAGE)
    assert room["net/netfilter/nf_conntrack_max"] == flows
    assert flows * 320 <= memory / 12


def test_rp_filter_is_off_on_every_egress() -> None:
    topology = Topology(
        lans=("lan0",), wans=("wan1",), routable=("wan1", "l2tp_1", "docker0", "wg0", "wg1")
    )
    wanted = sysctls.wanted(topology, ["wg0", "lan0"])
    unchecked = {name.split("/")[3] for name in wanted if name.endswith("/rp_filter")}
    assert unchecked == {"all", "default", "wan1", "l2tp_1", "wg0"}


def test_the_configured_ipv6_router_is_accepted_on_a_lan_that_is_a_wan() -> None:
    topology = Topology(
        lans=("lan0", "lan1"),
        wans=("lan1",),
        unheard=("lan0", "lan1"),
        routers6=(("lan1", IPv6Address("fe80::1")),),
    )
    wanted = sysctls.wanted(topology, [])
    for kind, names in (
        ("accept_ra", {"lan0"}),
        ("autoconf", {"lan0"}),
        ("accept_redirects", {"lan0", "lan1"}),
    ):
        assert {n for n in names if wanted.get(f"net/ipv6/conf/{n}/{kind}") == "0"} == names
        assert {name.split("/")[3] for name in wanted if name.endswith(f"/{kind}")} == names


def test_each_neighbour_table_threshold_is_above_the_previous_one() -> None:
    room = sysctls.room(GIB // PAGE)
    for family in ("ipv4", "ipv6"):
        limits = [room[f"net/{family}/neigh/default/gc_thresh{n}"] for n in (1, 2, 3)]
        assert 1_000 < limits[0] < limits[1] < limits[2]
