"""Faults in the configuration of a pair."""

from __future__ import annotations

from dataclasses import replace
from ipaddress import IPv4Address, IPv4Interface

import pytest

from egressd.model.pair import Pair, faults, faults_here, holds_shared, unaddressed
from tests.support.pairs import PAIR

PRESENT = {
    "lo": [IPv4Interface("127.0.0.1/8")],
    "lan0": [IPv4Interface("10.77.0.2/16")],
    "sync0": [IPv4Interface("192.168.77.1/24")],
    "wan0": [IPv4Interface("100.64.0.2/24"), IPv4Interface("100.64.0.10/32")],
    "wan1": [IPv4Interface("100.64.1.2/24")],
}


def test_a_right_configuration_has_no_faults() -> None:
    assert [*faults(PAIR), *faults_here(PAIR, PRESENT)] == []


@pytest.mark.parametrize(
    ("pair", "fault"),
    [
        (
            replace(PAIR, lan=replace(PAIR.lan, peer=PAIR.lan.own)),
            "lan: this box and its peer have the same address 10.77.0.2",
        ),
        (
            replace(
                PAIR,
                sync=replace(PAIR.sync, interface="lan0"),
                shared={"wan0": IPv4Interface("100.64.0.9")},
            ),
            "sync: lan0 is the LAN: the sync link needs an interface of its own",
        ),
        (replace(PAIR, shared={}), "shared: must not be empty"),
        (
            replace(PAIR, shared={"sync0": IPv4Interface("10.9.9.9")}),
            "shared: sync0 is the sync link",
        ),
        (
            replace(PAIR, shared={"lan0": IPv4Interface("10.77.0.2/16")}),
            "shared: 10.77.0.2 of lan0 is this box's own address",
        ),
        (
            replace(PAIR, shared={"lan0": IPv4Interface("10.77.0.3/16")}),
            "shared: 10.77.0.3 of lan0 is the peer's own address",
        ),
        (
            replace(PAIR, shared=dict.fromkeys(("wan0", "wan1"), IPv4Interface("100.64.0.10"))),
            "shared: wan0 and wan1 have the same address 100.64.0.10",
        ),
    ],
)
def test_a_contradiction_is_named(pair: Pair, fault: str) -> None:
    assert list(faults(pair)) == [fault]


@pytest.mark.parametrize(
    ("name", "addresses", "fault"),
    [
        ("sync0", None, "this box has no interface sync0"),
        ("wan1", None, "this box has no interface wan1 for the shared address 100.64.1.10"),
        ("sync0", ["192.168.77.9/24"], "sync0 does not have the address 192.168.77.1"),
        (
            "sync0",
            ["192.168.77.1/32"],
            "the peer 192.168.77.2 is not in the network of 192.168.77.1 on sync0",
        ),
    ],
)
def test_a_fault_of_this_box_is_named(name: str, addresses: list[str] | None, fault: str) -> None:
    present: dict[str, list[IPv4Interface]] = {**PRESENT}
    del present[name]
    if addresses is not None:
        present[name] = [IPv4Interface(address) for address in addresses]
    assert list(faults_here(PAIR, present)) == [fault]


@pytest.mark.parametrize("addresses", [["100.64.0.10/32"], []])
def test_a_wan_without_an_address_is_no_fault(addresses: list[str]) -> None:
    present = {**PRESENT, "wan0": [IPv4Interface(address) for address in addresses]}
    assert [*faults_here(PAIR, present)] == unaddressed(PAIR, PRESENT) == []
    assert unaddressed(PAIR, present) == ["wan0"]


def test_the_peer_of_the_lan_is_in_its_network() -> None:
    pair = replace(PAIR, lan=replace(PAIR.lan, peer=IPv4Address("10.78.0.3")))
    assert list(faults_here(pair, PRESENT)) == [
        "the peer 10.78.0.3 is not in the network of 10.77.0.2 on lan0"
    ]


def test_only_all_shared_addresses_together_are_held() -> None:
    present = dict(PRESENT)
    for name, address in PAIR.shared.items():
        assert not holds_shared(PAIR, present)
        elsewhere = next(other for other in PAIR.shared if other != name)
        there = {**present, elsewhere: [*present[elsewhere], address]}
        if not any(each.ip == address.ip for each in present[name]):
            assert not holds_shared(PAIR, there)
        present[name] = [*present[name], address]
    assert holds_shared(PAIR, present)
    missing = replace(PAIR, shared={**PAIR.shared, "wan9": IPv4Interface("192.0.2.11")})
    assert not holds_shared(missing, present)
