"""The devices near this one are those that the machine knows."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address, IPv6Interface, IPv6Network

import pytest

from egressd.app import network, surroundings
from egressd.model.device import InterfaceRoles
from egressd.model.errors import Failed


def test_the_machines_own_addresses_are_found() -> None:
    around = surroundings.look_around(InterfaceRoles(), ("home.test",))
    assert IPv4Address("127.0.0.1") in around.own
    assert around.domains == ("home.test",)


def test_a_lans_networks_are_those_of_its_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    found = [
        ("lan0", IPv6Interface("2001:db8:7::1/64")),
        ("wan0", IPv6Interface("2001:db8:8::1/64")),
    ]
    monkeypatch.setattr(network, "own_addresses6", lambda: iter(found))
    around = surroundings.look_around(InterfaceRoles(lan=("lan0",)), ())
    assert {IPv6Address("2001:db8:7::1"), IPv6Address("2001:db8:8::1")} <= around.own
    assert [each for each in around.networks if each.version == 6] == [
        IPv6Network("2001:db8:7::/64")
    ]


def test_an_error_in_reading_addresses_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(network, "facts", fail)
    with pytest.raises(Failed, match="see this device's addresses"):
        surroundings.look_around(InterfaceRoles(), ())


def test_ipv6_addresses_are_parsed_from_the_kernels_format() -> None:
    for name, address in network.own_addresses6():
        assert name
        assert address.network.prefixlen <= 128
