"""Speed limits on the whole device: set by the API, and measured behind it, for every target."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from egressd_lab.spec import LAN_ADDRESS
from tests.lab.limited import (
    BYSTANDER,
    DOWN,
    FAST,
    GLANCE_S,
    GUEST,
    LIMITED,
    TARGETS,
    UP,
    Site,
    limited_site,
    share,
)
from tests.support.device import SERVER, eventually
from tests.support.shaping import (
    Arrivals,
    tcp,
    udp,
    udp_receive,
)

pytestmark = [pytest.mark.lab, pytest.mark.alone]


@pytest.fixture(scope="module")
def site(namespaces: None) -> Iterator[Site]:
    with limited_site() as site:
        yield site


@pytest.mark.parametrize("flows", [1, 8])
def test_tcp_is_limited_in_both_directions(site: Site, flows: int) -> None:
    for upload, limit in ((True, UP), (False, DOWN)):
        arrived = site.tcp_of(TARGETS, upload=upload, flows=flows)
        assert {n for n, each in arrived.items() if share(each, limit) in LIMITED} == {*TARGETS}


def test_udp_is_limited_in_both_directions(site: Site) -> None:
    arrived = site.udp_up_of(TARGETS)
    assert {n for n, each in arrived.items() if share(each, UP) in LIMITED} == {*TARGETS}


def test_a_bystander_is_not_limited(site: Site) -> None:
    floods = [site.flood(number, seconds=3) for number in TARGETS]
    assert site.is_fast(BYSTANDER, upload=True)
    assert site.is_fast(BYSTANDER, upload=False)
    for flood in floods:
        flood.result()


def test_the_router_and_the_other_lan_are_not_limited(site: Site) -> None:
    namespace, address = site.client(3)
    for server, target in ((site.router, str(LAN_ADDRESS)), (site.guest, GUEST)):
        for upload in (True, False):
            arrived = tcp(namespace, server, address, upload=upload, target=target, seconds=1.2)
            assert share(arrived, DOWN, GLANCE_S) > FAST
    assert share(site.tcp(3, upload=True), UP) in LIMITED, "the same client is limited"


def test_a_client_of_the_other_lan_is_limited(site: Site) -> None:
    site.put(GUEST, "DIRECT", UP, DOWN)
    pairs = [(GUEST, SERVER)]
    assert share(udp(site.guest, site.internet, pairs, kbps=2 * UP, seconds=2)[0], UP) in LIMITED


def test_hosts_of_a_network_share_a_limit_except_one_with_its_own(site: Site) -> None:
    site.put("10.77.0.0/24", "DIRECT", 4 * UP)
    bystander = site.lab.client(BYSTANDER).address
    assert site.is_fast(BYSTANDER, upload=True), "it has a rule without limits"
    rule = next(rule for rule in site.rules() if rule["ip"] == bystander)
    site.lab.api.delete(f"/rules/{rule['id']}")
    arrived = site.tcp_of((BYSTANDER, 3), upload=True)
    assert share(arrived[BYSTANDER], 4 * UP) in LIMITED
    assert share(arrived[3], UP) in LIMITED
    site.put(bystander, "DIRECT")
    site.delete("10.77.0.0/24")
    assert site.is_fast(BYSTANDER, upload=True)


@pytest.mark.parametrize("number", TARGETS, ids=TARGETS.values())
def test_a_change_is_effective_at_once_and_cuts_no_connection(site: Site, number: int) -> None:
    connections = [site.lab.client(n).connect() for n in (*TARGETS, BYSTANDER)]
    arriving = site.internet.start(udp_receive, 4)
    flood = site.flood(number, 4 * UP, 4)
    time.sleep(1.7)
    site.limit(number, 2 * UP)
    arrived = arriving.result()[0]
    flood.result()
    assert share(arrived, UP, seconds=1) in LIMITED
    assert share(Arrivals(arrived.buckets[-30:-10]), 2 * UP, seconds=1) in LIMITED
    assert arrived.peak() < 1.15 * 2 * UP * 1000
    for connection in connections:
        assert connection.exchange("not cut").ok
        connection.close()
    site.limit(number)


def test_a_moved_client_keeps_its_limit(site: Site) -> None:
    address = site.lab.client(3).address
    for target in ("Interface:wan2", "ss", "DIRECT"):
        site.put(address, target, UP, DOWN)
        assert share(site.udp_up(3, seconds=2), UP, seconds=2) in LIMITED


@pytest.mark.parametrize(
    "damage",
    [
        "tc qdisc del dev egressd-up0 root",
        "tc class del dev egressd-up0 classid 6500:1",
        "tc class change dev egressd-up0 parent root classid 6500:2 htb rate 1gbit",
        "ip link del egressd-up0",
        "ip link set egressd-down0 down",
        "nft flush ruleset",
        "nft delete table netdev egressd",
        "nft delete element netdev egressd up_hosts { 10.77.0.13 }",
        "nft flush map netdev egressd up_devices",
    ],
)
def test_damage_by_another_program_is_repaired(site: Site, damage: str) -> None:
    whole = site.state()
    site.shell(damage)
    eventually(lambda: site.state() == whole)
    arrived = site.udp_up_of(TARGETS, seconds=1.5)
    assert arrived.keys() == TARGETS.keys()
    # Unlimited it would be twice the limit. What a busy machine holds back for a moment counts much
    # in one second.
    assert max(share(each, UP, seconds=1) for each in arrived.values()) < 1_200


def test_a_recreated_lan_is_limited_again(site: Site) -> None:
    site.put(GUEST, "DIRECT", UP, DOWN)
    site.shell("ip link set lan1 down; ip link set lan1 name lan9")
    site.shell("ip link set lan9 name lan1; ip link set lan1 up")
    pairs = [(GUEST, SERVER)]

    def is_limited() -> bool:
        arrived = udp(site.guest, site.internet, pairs, kbps=2 * UP, seconds=1).get(0)
        return arrived is not None and share(arrived, UP, seconds=1) in range(500, 1100)

    eventually(is_limited, 20)
