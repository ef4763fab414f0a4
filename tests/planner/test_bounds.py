"""Limits of one client: figures that fit the machine, and the rules that enforce them."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from egressd.planner import nft
from egressd.planner.bounds import (
    CONNECTIONS_MAX,
    CONNECTIONS_MIN,
    DESCRIPTORS_MAX,
    QUESTIONS_AT_ONCE,
    QUESTIONS_PER_S,
    Bounds,
    bounds_of,
    descriptors,
    workers_memory,
)
from egressd.planner.naming import ASKING

GIB = 1 << 30
SPLICED = 6
"""Open files of a connection whose bytes are spliced."""


def rules(bounds: Bounds) -> list[str]:
    text = nft.load({name: {} for name in nft.INET.names}, bounds)
    return [line for line in text.splitlines() if line.startswith("add rule")]


def test_a_client_has_at_most_256_open_dns_questions() -> None:
    patience = ASKING["timeout"]
    assert patience == "4s"
    assert QUESTIONS_AT_ONCE + 4 * QUESTIONS_PER_S <= 256


@given(st.integers(1024, 2**21))
def test_four_clients_do_not_take_a_workers_descriptors(limit: int) -> None:
    bounds = bounds_of(limit)
    assert CONNECTIONS_MIN <= bounds.connections <= CONNECTIONS_MAX
    if bounds.connections > CONNECTIONS_MIN:
        assert 4 * bounds.connections * SPLICED <= limit
        assert (bounds.outside + bounds.callers) * SPLICED <= limit
        assert 2 * bounds.connections_of_network * SPLICED <= limit


@given(st.integers(1024, 2**21), st.integers(1024, 2**21))
def test_bounds_grow_with_the_workers_descriptor_limit(one: int, other: int) -> None:
    less, more = (bounds_of(limit) for limit in sorted((one, other)))
    of_networks = ("connections_of_network", "sessions_of_network", "sessions_of_network_kept")
    of_clients = ("connections", "sessions", "sessions_per_s", "sessions_kept", "flows")
    for name in (*of_clients, "callers", "outside", *of_networks):
        assert 0 < getattr(less, name) <= getattr(more, name)


@given(st.integers(1024, 2**21))
def test_a_clients_bound_is_at_most_that_of_its_network(limit: int) -> None:
    bounds = bounds_of(limit)
    assert bounds.connections <= bounds.connections_of_network
    assert bounds.sessions < bounds.sessions_of_network
    assert bounds.sessions_per_s < bounds.sessions_of_network_per_s
    assert bounds.sessions_kept < bounds.sessions_of_network_kept


def test_a_client_may_have_800_connections_on_a_box_with_1_gib() -> None:
    small = bounds_of(descriptors(workers_memory(GIB, 3)))
    assert small.connections >= 800
    assert bounds_of(DESCRIPTORS_MAX) == Bounds()


def test_workers_share_the_memory_and_their_descriptors_fit_it() -> None:
    assert 3 * workers_memory(GIB, 3) <= GIB
    for memory in (GIB // 2, GIB, 4 * GIB, 64 * GIB):
        assert descriptors(memory) <= DESCRIPTORS_MAX
    assert descriptors(GIB // 4) * 12_288 <= GIB // 4


def test_rules_contain_the_figures_and_no_placeholder() -> None:
    bounds = bounds_of(20_000)
    text = "\n".join(rules(bounds))
    assert "$" not in text
    assert f"@tcp_of {{ ip saddr ct count over {bounds.connections} }}" in text
    assert f"limit rate over {bounds.sessions_per_s}/second burst {bounds.sessions} packets" in text
    assert (
        f"limit rate over {bounds.sessions_of_network_per_s}/second"
        f" burst {bounds.sessions_of_network} packets"
    ) in text


def test_clients_over_a_bound_are_refused_before_they_are_counted() -> None:
    """Counting looks at every existing connection."""
    for counted, full in (
        ("tcp_of", "full_tcp"),
        ("udp_of", "full_udp"),
        ("dns_of", "full_dns"),
    ):
        lines = rules(Bounds())
        counting = next(n for n, line in enumerate(lines) if f"add @{counted} " in line)
        gates = [
            n for n, line in enumerate(lines) if re.search(f"saddr @{full} |proto @{full} ", line)
        ]
        assert gates
        assert min(gates) < counting
