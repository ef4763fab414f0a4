"""Speed limits on the kernel, under traffic. ``bench/shaping.py`` measures more, for longer."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from egressd.planner.shaping import FRAME_BYTES
from tests.lab.shaped import (
    CLIENT,
    FULL,
    GLANCE_S,
    GUEST,
    HIGH,
    KBPS,
    OTHER,
    SECONDS,
    download,
    is_fast,
    mean_packet,
    send_both,
    send_up,
    share,
    start_download,
    start_upload,
    upload,
    without_limits,
)
from tests.support.shaping import (
    PAYLOAD,
    PORT,
    ROUTER,
    SERVER,
    OneArmSite,
    Site,
    joined,
    limit,
    limits_state,
    start_tcp,
    tcp,
    udp,
    udp_send,
)

pytestmark = [pytest.mark.lab, pytest.mark.alone]


@pytest.fixture(scope="module")
def shared() -> Iterator[Site]:
    with Site() as site:
        yield site


@pytest.fixture
def site(shared: Site) -> Iterator[Site]:
    """Yield a site without any limit yet."""
    with without_limits(shared):
        yield shared


# --- Limits hold. --------------------------------------------------------------------------


@pytest.mark.parametrize("flows", [1, 8])
def test_tcp_is_limited_exactly_in_both_directions(site: Site, flows: int) -> None:
    assert is_fast(site, upload=True, flows=flows), "the way itself must be fast"
    site.limit({client: limit(n, KBPS, 2 * KBPS) for n, client in enumerate((CLIENT, OTHER), 1)})
    # Two clients are used, since one client's acknowledgements would wait behind its own data.
    up, down = start_upload(site, CLIENT, flows), start_download(site, OTHER, flows)
    assert share(up()) in FULL
    assert share(down(), 2 * KBPS) in FULL


def test_udp_is_limited_exactly_in_both_directions(site: Site) -> None:
    site.limit({CLIENT: limit(1, KBPS, 2 * KBPS)})
    up, down = send_both(site, 2 * KBPS, 4 * KBPS)
    assert share(up) in FULL
    assert share(down, 2 * KBPS) in FULL


def test_joined_packets_are_taken_whole_only_at_high_limits(site: Site) -> None:
    site.limit({CLIENT: limit(1, HIGH, KBPS), OTHER: limit(2, KBPS, HIGH)})
    high = start_upload(site, CLIENT), start_download(site, OTHER)
    assert [share(wait(), HIGH) in FULL for wait in high] == [True, True]
    low = start_upload(site, OTHER), start_download(site, CLIENT)
    assert [share(wait()) in FULL for wait in low] == [True, True]
    for way in ("up", "down"):
        assert mean_packet(site, f"egressd-{way}0") <= FRAME_BYTES < 4000
        assert mean_packet(site, f"egressd-{way}64") > 4000


def test_a_limit_in_one_direction_does_not_limit_the_other(site: Site) -> None:
    site.limit({CLIENT: limit(1, upload=KBPS)})
    assert share(upload(site)) in FULL
    assert is_fast(site, upload=False)


def test_no_second_exceeds_the_limit(site: Site) -> None:
    site.limit({CLIENT: limit(1, 256, 256)})
    for arrivals in send_both(site, 2000, 2000):
        assert arrivals.peak() <= 1.15 * 256_000


@pytest.mark.parametrize("flows", [1, 8])
def test_limits_apply_to_traffic_through_the_engine(flows: int) -> None:
    with Site() as site:
        site.intercept()
        site.limit({CLIENT: limit(1, KBPS, 2 * KBPS), OTHER: limit(2, KBPS, 2 * KBPS)})
        up, down = (
            start_tcp(
                site.client,
                site.router,
                client,
                upload=is_upload,
                flows=flows,
                seconds=SECONDS + 0.5,
                transparent=True,
                port=port,
            )
            for client, is_upload, port in ((CLIENT, True, PORT), (OTHER, False, PORT + 1))
        )
        assert share(up()) in FULL
        assert share(down(), 2 * KBPS) in FULL


def test_limits_hold_in_one_arm_use() -> None:
    with OneArmSite() as site:
        assert is_fast(site, upload=True)
        site.limit({"10.77.1.0/24": limit(1, KBPS, 3 * KBPS)})
        assert share(upload(site)) in FULL
        assert share(download(site), 3 * KBPS) in FULL
        assert is_fast(site, "10.77.128.1", upload=False)


def test_a_limit_has_a_fair_queue_if_the_kernel_has_one(site: Site) -> None:
    tried = "tc qdisc add dev lo root fq_codel 2>/dev/null && tc qdisc del dev lo root && echo ok"
    has_fair_queue = "ok" in site.router.shell(f"{tried} || true")
    site.limit({CLIENT: limit(1, KBPS, KBPS)})
    for device in ("egressd-up0", "egressd-down0"):
        shown = site.router.shell(f"tc qdisc show dev {device}")
        (leaf,) = re.findall(r"qdisc (\w+) 1: parent 6500:1 limit 66p", shown)
        assert leaf == ("fq_codel" if has_fair_queue else "pfifo")


def test_two_devices_on_one_machine_do_not_affect_each_other(site: Site) -> None:
    with Site() as second:
        site.limit({CLIENT: limit(1, KBPS)})
        second.limit({CLIENT: limit(1, 2 * KBPS), OTHER: limit(2, KBPS)})
        before = limits_state(site.router.shell)
        second.limit({})
        assert limits_state(site.router.shell) == before
        assert is_fast(second, upload=True)
        assert share(upload(site)) in FULL


# --- The client that a limit applies to. ---------------------------------------------------


def test_a_network_shares_a_limit_and_a_host_in_it_may_have_its_own(site: Site) -> None:
    site.limit(
        {
            "10.77.0.0/16": limit(1, upload=KBPS),
            "10.77.1.128/25": limit(2, upload=2 * KBPS),
            "10.77.1.10": limit(3, upload=1000),
            "10.77.1.11": limit(4),
        }
    )
    shared = ["10.77.1.2", "10.77.1.3", "10.77.128.7"]
    narrower = ["10.77.1.130", "10.77.1.131"]
    arrived = send_up(site, 2 * KBPS, *shared, *narrower, "10.77.1.10")
    assert share(joined([arrived[n] for n in range(3)])) in FULL
    assert share(joined([arrived[n] for n in (3, 4)]), 2 * KBPS) in FULL
    assert share(arrived[5], 1000) in FULL
    assert is_fast(site, "10.77.1.11", upload=True)


def test_a_limit_is_shared_by_all_lans(site: Site) -> None:
    site.limit({"10.76.0.0/14": limit(1, upload=KBPS)})
    guest = site.guest.start(udp_send, [(GUEST, SERVER)], KBPS, SECONDS, PAYLOAD, 1)
    client = send_up(site, KBPS, CLIENT)
    guest.result()
    assert share(joined([client[0], client[1]]), seconds=1.5) in FULL
    assert min(share(client[0], seconds=1.5), share(client[1], seconds=1.5)) > 200


def test_the_router_and_other_lans_are_not_limited(site: Site) -> None:
    site.limit({CLIENT: limit(1, 256, 256), GUEST: limit(2, 256, 256)})
    for server, target in ((site.router, ROUTER), (site.guest, GUEST)):
        seconds = GLANCE_S + 0.2
        arrived = tcp(site.client, server, CLIENT, upload=True, target=target, seconds=seconds)
        assert share(arrived, seconds=GLANCE_S) > 10_000
    assert share(upload(site), 256) in FULL, "the same client is limited"


def test_frames_of_9000_bytes_pass_a_limit(site: Site) -> None:
    for host in (site.client, site.server):
        host.shell("ip link set eth0 mtu 9000")
    site.router.shell("for i in port0 lan0 wan0; do ip link set $i mtu 9000; done")
    try:
        site.limit({CLIENT: limit(1, KBPS, KBPS)})
        pairs = [(CLIENT, SERVER)]
        arrived = udp(site.client, site.server, pairs, kbps=2 * KBPS, seconds=2, payload=8900)
        assert share(arrived[0]) in FULL
    finally:
        for namespace, name in (
            (site.server, "eth0"),
            (site.router, "wan0"),
            (site.client, "eth0"),
        ):
            namespace.shell(f"ip link set {name} mtu 1500")
        site.router.shell("ip link set port0 mtu 1500; ip link set lan0 mtu 1500")
