"""The addresses that a pair shares, in a kernel."""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import IPv4Interface

import pytest

from egressd.netd.kernel import addresses
from tests.support.netns import Namespace

pytestmark = pytest.mark.lab

SHARED = {"lan0": IPv4Interface("10.77.0.1/24"), "wan0": IPv4Interface("192.0.2.10")}


@pytest.fixture
def space(namespaces: None) -> Iterator[Namespace]:
    with Namespace() as made:
        for name in SHARED:
            made.shell(f"ip link add {name} type bridge; ip link set {name} up")
        made.shell("ip address add 10.77.0.2/24 dev lan0")
        yield made


def test_no_other_address_is_removed(space: Namespace) -> None:
    for name, address in SHARED.items():
        space.shell(f"ip address add {address} dev {name}")
    wanted = {**SHARED, "wan9": IPv4Interface("192.0.2.11")}
    space.run(addresses.remove, wanted)
    space.run(addresses.remove, wanted)
    shown = space.shell("ip -4 -o address show")
    assert "10.77.0.2/24" in shown
    assert "10.77.0.1/" not in shown
    assert "192.0.2.10" not in shown
