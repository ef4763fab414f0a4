"""Interfaces that multicast is routed to, as the kernel lists them."""

from __future__ import annotations

from pathlib import Path

from egressd.netd.kernel.multicast import destinations

VIFS = """\
Interface      BytesIn  PktsIn  BytesOut PktsOut Flags Local    Remote
 0 wan1             612       9         0       0 00000 0200A8C0 00000000
 1 lan0               0       0       612       9 00000 014D4D0A 00000000
 2 lan1               0       0         0       0 00000 014E4E0A 00000000
"""
CACHE = """\
Group    Origin   Iif     Pkts    Bytes    Wrong Oifs
030201EF 0A7100CB 0          9      612        0  1:1
040201EF 0A7100CB -1         0        0        0
"""


def test_destinations_of_routed_groups_are_found(tmp_path: Path) -> None:
    (tmp_path / "ip_mr_vif").write_text(VIFS)
    (tmp_path / "ip_mr_cache").write_text(CACHE)
    assert destinations(tmp_path) == {"lan0"}


def test_a_kernel_without_multicast_routing_has_no_destinations(tmp_path: Path) -> None:
    assert destinations(tmp_path) == frozenset()
