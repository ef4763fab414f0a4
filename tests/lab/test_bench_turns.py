"""The benchmarks' router that egressd and another program are in turn."""

from __future__ import annotations

import pytest

from bench import ends, peers, turns
from bench.sites import SERVER, Site
from egressd_lab.spec import LabSpec

pytestmark = pytest.mark.lab


def test_a_peer_has_its_turn_again(namespaces: None) -> None:
    """The route of a peer's TPROXY stayed, so that the second turn could not add it."""
    with Site(LabSpec(nodes=())) as site:
        for _ in range(2):
            peers.tproxy(site.lab)
            turns.clear(site)
        routes = site.lab.router.run("ip", "route", "show", "table", "all").stdout
        assert f"table {peers.TPROXY_TABLE}" not in routes


def test_the_cost_of_a_known_packet_is_measured(namespaces: None) -> None:
    with Site(LabSpec(nodes=())) as site, site.lab.plain_router():
        source = site.lab.client(1).address
        assert site.client(1, ends.known_packet_cost, source, SERVER, 1) > 0
