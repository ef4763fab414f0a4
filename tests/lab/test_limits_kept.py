"""Speed limits and counters while egressd is dead, restarted or stopped, in one-arm use, and with
the operator's own rules.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from egressd.model.errors import Failed
from egressd_lab.lab import Lab
from egressd_lab.spec import LabSpec
from tests.lab.limited import (
    BYSTANDER,
    DOWN,
    FAST,
    GUEST,
    LIMITED,
    TARGETS,
    UP,
    Site,
    limited_site,
    share,
)
from tests.support.device import SERVER, eventually, port_forward
from tests.support.shaping import (
    PORT,
    connect,
    listen,
)

pytestmark = [pytest.mark.lab, pytest.mark.alone]


@pytest.fixture(scope="module")
def site(namespaces: None) -> Iterator[Site]:
    with limited_site() as site:
        yield site


def test_limits_hold_and_counters_continue_while_egressd_is_dead(site: Site) -> None:
    before = site.state()
    site.lab.device.kill()
    arrived = site.udp_up_of((2, 3))
    assert {n for n, each in arrived.items() if share(each, UP) in LIMITED} == {2, 3}
    counted = site.counted()
    site.lab.device.start()
    assert site.state() == before
    for rule, passed in site.counted().items():
        assert passed >= counted[rule], "a class that is right is left alone"


def test_a_restarted_netd_has_the_same_limits(site: Site) -> None:
    before = site.state()
    (pid,) = site.lab.device.pids("egressd.app netd")
    os.kill(pid, signal.SIGKILL)
    assert share(site.udp_up(3), UP) in LIMITED
    site.lab.device.wait_healthy()
    assert site.state() == before
    site.limit(3, 2 * UP)
    assert share(site.udp_up(3, 4 * UP), 2 * UP) in LIMITED
    site.limit(3)


def test_a_restarted_service_limits_again(site: Site) -> None:
    before = site.state()
    site.lab.device.stop()
    site.lab.device.start()
    assert site.state() == before
    assert share(site.udp_up(3), UP) in LIMITED


def test_an_open_or_stopped_device_has_no_limits_or_counters(site: Site) -> None:
    before = site.state()
    site.lab.api.ask("POST", "/ops/open", {"confirm": "open"})
    assert "hook" not in site.shell("nft list table netdev egressd")
    assert site.is_fast(3, upload=True)
    site.lab.api.ask("POST", "/ops/stop", {})
    assert not site.lab.client(3).udp_echo("stopped", timeout=0.5).ok
    site.lab.api.ask("POST", "/ops/start", {})
    assert site.state() == before
    assert share(site.udp_up(3), UP) in LIMITED


def test_a_limit_refused_by_the_kernel_is_refused_and_changes_nothing(site: Site) -> None:
    for number in TARGETS:
        site.limit(number, 0, 0)
    site.delete(GUEST)
    # No limit is set: the devices are gone, the second one removed by netd if it is faster. A
    # device of another program takes the place of one.
    site.shell("for i in up0 down0; do ip link del egressd-$i || ! ip link show egressd-$i; done")
    site.shell("ip link add egressd-up0 type bridge")
    with pytest.raises(Failed, match="egressd-up0"):
        site.limit(3)
    before = next(r for r in site.rules() if r["ip"] == site.lab.client(3).address)
    assert before["upload_limit_kbps"] == 0
    assert site.is_fast(3, upload=True)
    site.put(GUEST, "DIRECT")  # a change that needs no limit is made all the same
    site.shell("ip link del egressd-up0")
    for number in TARGETS:
        site.limit(number)
    assert share(site.udp_up(3), UP) in LIMITED


def test_limits_hold_in_one_arm_use(namespaces: None) -> None:
    spec = LabSpec(nodes=(), clients=2, wans=1, one_arm=True)
    with Lab(spec) as lab, ExitStack() as stack:
        lab.start_egressd()
        site = Site(lab, stack)
        site.put(lab.client(1).address, "DIRECT", UP, DOWN)
        site.put("10.77.0.0/24", "DIRECT", 4 * UP, 4 * DOWN)
        up, down = (site.tcp_of((1, 2), upload=upload) for upload in (True, False))
        assert share(up[1], UP) in LIMITED
        assert share(down[1], DOWN) in LIMITED
        # If packets to the internet counted as the network's download, its share would be less.
        assert share(up[2], 4 * UP) in LIMITED
        assert share(down[2], 4 * DOWN) in LIMITED
        # Answers from outside arrive by the LAN. They count for the client, and only once.
        site.put(lab.client(2).address, "DIRECT")
        received = sum(site.tcp(2, upload=False).buckets)
        time.sleep(1.1)  # the API repeats its counters for a second
        counted = site.counters()[lab.client(2).address]
        assert received < counted["download_bytes"] < 1.5 * received


def test_every_rule_is_counted_in_both_directions(site: Site) -> None:
    addresses = {number: site.lab.client(number).address for number in (*TARGETS, BYSTANDER)}
    time.sleep(1.1)  # the API repeats its counters for a second
    before = site.counters()
    sent = site.udp_up_of(addresses, 200, 1)
    assert site.is_fast(BYSTANDER, upload=False)
    time.sleep(1.1)
    after = site.counters()
    for number, address in addresses.items():
        grown = {key: after[address][key] - value for key, value in before[address].items()}
        assert grown["upload_bytes"] >= sum(sent[number].buckets) > 0
        assert grown["upload_packets"] > 0
    assert after[addresses[BYSTANDER]]["download_bytes"] > 10 * 1000 * FAST
    answer = site.lab.api.ask("GET", "/ops/metrics")
    shown = f'egressd_rule_bytes_total{{rule="{addresses[3]}",direction="upload"}} '
    (line,) = (line for line in answer.body.splitlines() if line.startswith(shown))
    assert int(line.removeprefix(shown)) >= after[addresses[3]]["upload_bytes"]


def test_traffic_of_a_port_forward_is_counted_in_both_directions(site: Site) -> None:
    namespace, address = site.client(BYSTANDER)
    gateway = site.lab.wan(1)
    forward = f"iifname {gateway.interface} tcp dport {PORT} dnat to {address}"
    with port_forward(site.lab, forward):
        time.sleep(1.1)  # the API repeats its counters for a second
        before = site.counters()[address]
        sending = namespace.start(listen, 1, 0.5, False, (address, PORT))
        end = (gateway.address, PORT)
        received = site.internet.run(connect, SERVER, end, 1, 0.5, True)
        sending.result()
        time.sleep(1.1)
        after = site.counters()[address]
    assert after["upload_bytes"] - before["upload_bytes"] >= sum(received.buckets) > 0
    assert after["download_bytes"] > before["download_bytes"]


def test_counting_continues_in_a_recreated_table(site: Site) -> None:
    site.lab.router.run("nft", "delete", "table", "inet", "egressd")
    eventually(lambda: site.lab.client(BYSTANDER).http(f"http://{SERVER}/").ok)
    site.udp_up(BYSTANDER, 200, 1)
    time.sleep(1.1)
    before = site.counters()
    site.udp_up(BYSTANDER, 200, 1)
    time.sleep(1.1)
    address = site.lab.client(BYSTANDER).address
    assert site.counters()[address]["upload_bytes"] > before[address]["upload_bytes"] > 0
