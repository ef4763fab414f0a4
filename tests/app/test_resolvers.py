"""The device's DNS servers: as configured, or as resolv.conf names them at the moment."""

from __future__ import annotations

from collections.abc import Callable
from ipaddress import IPv4Address, IPv4Interface
from pathlib import Path

import pytest

from egressd.app import config, network
from egressd.app.config import Dns
from egressd.app.resolvers import DeviceResolvers
from egressd.model.facts import Facts, Interface, Route
from tests.support.netns import Namespace

DOMESTIC = "192.0.2.54"
UNNAMED = Dns(domestic=(IPv4Address(DOMESTIC),))


@pytest.fixture
def listing(tmp_path: Path) -> Callable[..., Path]:
    """Return a writer of a resolv.conf with given servers, which returns its path."""

    def write(*servers: str) -> Path:
        file = tmp_path / "resolv.conf"
        file.write_text("search lan\n" + "".join(f"nameserver {s}\n" for s in servers))
        return file

    return write


@pytest.fixture
def ways(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Return the interface towards each server, by its address: it replaces the
    machine's routes.
    """
    known: dict[str, str] = {}
    monkeypatch.setattr(network, "interface_to", lambda address: known.get(str(address), ""))
    return known


def settle(resolvers: DeviceResolvers) -> tuple[str, ...]:
    """Return the device's servers once they have settled, while nothing changes."""
    resolvers.refresh()
    resolvers.refresh()
    assert not resolvers.refresh()
    return resolvers.current.device


def test_without_a_resolver_the_domestic_ones_are_used(tmp_path: Path) -> None:
    resolvers = DeviceResolvers(UNNAMED, tmp_path / "none")
    assert resolvers.current.device == (DOMESTIC,)
    assert not resolvers.refresh()


def test_a_change_is_adopted_when_it_is_seen_twice(
    listing: Callable[..., Path], ways: dict[str, str]
) -> None:
    resolvers = DeviceResolvers(UNNAMED, listing("198.51.100.1"))
    listing("198.51.100.2")
    assert not resolvers.refresh()
    listing("198.51.100.3")
    assert not resolvers.refresh()
    assert resolvers.current.device == ("198.51.100.1",)
    assert resolvers.refresh()
    assert resolvers.current.device == ("198.51.100.3",)
    assert not resolvers.refresh()


def test_the_resolver_in_use_stays_while_it_is_listed(
    listing: Callable[..., Path], ways: dict[str, str]
) -> None:
    resolvers = DeviceResolvers(UNNAMED, listing("198.51.100.1", "198.51.100.2"))
    listing("198.51.100.3", "198.51.100.2", "198.51.100.1")
    assert settle(resolvers) == ("198.51.100.1", "198.51.100.3", "198.51.100.2")
    listing("198.51.100.3", "198.51.100.2")
    assert settle(resolvers) == ("198.51.100.3", "198.51.100.2")


def test_a_temporary_loss_changes_nothing(
    listing: Callable[..., Path], ways: dict[str, str]
) -> None:
    ways["192.168.1.1"] = "wan1"
    resolvers = DeviceResolvers(UNNAMED, listing("192.168.1.1"))
    before = resolvers.current
    ways.clear()
    listing()
    settle(resolvers)
    listing("192.168.1.1")
    settle(resolvers)
    assert resolvers.current == before
    ways["192.168.1.1"] = "wan2"
    settle(resolvers)
    assert resolvers.current.near == (("192.168.1.1", "wan2"),)


def test_a_resolver_that_appears_after_the_start_is_adopted(
    listing: Callable[..., Path], ways: dict[str, str]
) -> None:
    resolvers = DeviceResolvers(UNNAMED, listing())
    assert resolvers.current.device == (DOMESTIC,)
    ways["192.168.1.1"] = "wan1"
    listing("192.168.1.1")
    assert settle(resolvers) == ("192.168.1.1",)
    assert resolvers.current.near == (("192.168.1.1", "wan1"),)


def test_configured_resolvers_take_precedence_over_resolv_conf(
    listing: Callable[..., Path], ways: dict[str, str]
) -> None:
    ways["192.168.1.1"] = "wan1"
    resolvers = DeviceResolvers(Dns(device=(IPv4Address("192.168.1.1"),)), listing("192.0.2.53"))
    assert (resolvers.current.device, resolvers.current.near) == (("192.168.1.1",), ())
    assert not resolvers.refresh()


@pytest.mark.lab
@pytest.mark.parametrize(
    ("servers", "device"),
    [
        (
            ["192.168.7.1", "0.0.0.0", "127.0.0.53", "::1", "192.168.7.2", "192.0.2.53"],
            "192.168.7.2",
        ),
        (["192.168.7.1"], DOMESTIC),
    ],
)
def test_a_resolver_on_this_machine_is_not_used_for_clients(
    listing: Callable[..., Path], servers: list[str], device: str
) -> None:
    # Found by an audit: clients' queries were sent to the router itself, and dropped there.
    with Namespace() as namespace:
        namespace.shell("ip address add 192.168.7.1/24 dev lo")
        found = namespace.run(DeviceResolvers, UNNAMED, listing(*servers)).current
        assert found.device[0] == device


@pytest.mark.lab
def test_a_resolver_reached_by_one_interface_is_assigned_to_it(
    listing: Callable[..., Path],
) -> None:
    servers = ("192.168.1.1", "192.168.2.1", "192.168.2.65", "203.0.113.53", "198.51.100.53")
    with Namespace() as namespace:
        for name in ("wan1", "wan2", "wan3"):
            namespace.shell(f"ip link add {name} type veth peer name far-{name}")
            namespace.shell(f"ip link set {name} up; ip link set far-{name} up")
        namespace.shell(
            "ip address add 192.168.1.2/24 dev wan1; ip address add 192.168.2.2/24 dev wan2;"
            "ip route add 192.168.2.64/26 dev wan3; ip route add default via 192.168.1.1;"
            "ip route add 203.0.113.53 via 192.168.2.1"
        )
        found = namespace.run(DeviceResolvers, UNNAMED, listing(*servers)).current
    assert found.device == servers
    assert dict(found.near) == {
        "192.168.1.1": "wan1",
        "192.168.2.1": "wan2",
        "192.168.2.65": "wan3",
        "203.0.113.53": "wan2",
    }


def test_reverse_zones_of_lans_are_local_and_kept_while_a_lan_is_down(
    listing: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    def machine(*addresses: str) -> Facts:
        networks = [IPv4Interface(address).network for address in addresses]
        own = tuple(IPv4Interface(address.partition("/")[0]) for address in addresses)
        return Facts(
            interfaces={"lan0": Interface(name="lan0", index=0, is_up=True, addresses=own)},
            routes=tuple(Route(destination=network, interface="lan0") for network in networks),
        )

    zones = {"lan": "10.0.0.1", "corp.example": "192.0.2.7"}
    monkeypatch.setattr(network, "facts", lambda: machine("10.0.0.1/24"))
    dns = config.read({"dns": {"device": ["10.0.0.53", "9.9.9.9"], "local": zones}}).dns
    resolvers = DeviceResolvers(dns, listing())
    assert [zone.domain for zone in resolvers.current.local] == [*zones, "0.0.10.in-addr.arpa"]
    assert resolvers.current.inner == ("10.0.0.1", "10.0.0.53")
    before = resolvers.current
    monkeypatch.setattr(network, "facts", machine)
    settle(resolvers)
    assert resolvers.current == before
    monkeypatch.setattr(network, "facts", lambda: machine("10.0.9.1/24", "10.0.0.1/24"))
    settle(resolvers)
    assert [zone.domain for zone in resolvers.current.local][-1] == "9.0.10.in-addr.arpa"


@pytest.mark.lab
def test_the_machines_lans_are_found(listing: Callable[..., Path]) -> None:
    with Namespace() as namespace:
        for name in ("wan1", "lan0", "docker0"):
            namespace.shell(f"ip link add {name} type veth peer name far-{name}")
            namespace.shell(f"ip link set {name} up; ip link set far-{name} up")
        namespace.shell(
            "ip address add 192.0.2.2/24 dev wan1; ip route add default via 192.0.2.1;"
            "ip address add 10.7.0.1/23 dev lan0; ip address add 10.8.0.1/24 dev lan0 label lan0:1;"
            "ip address add 172.17.0.1/16 dev docker0; ip route add 10.9.0.0/24 via 10.7.0.2"
        )
        dns = config.read({"dns": {"device": ["10.9.0.3"], "local": {"lan": "10.8.0.1"}}}).dns
        found = namespace.run(DeviceResolvers, dns, listing()).current
    assert {zone.domain for zone in found.local} == {
        "lan",
        *(f"{n}.in-addr.arpa" for n in ("0.7.10", "1.7.10", "0.8.10", "0.9.10")),
    }
    assert found.inner == ("10.8.0.1", "10.9.0.3")
