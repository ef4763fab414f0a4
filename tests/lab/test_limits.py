"""Speed limits on the whole device: set by the API, and measured behind it, for every target."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from egressd.model.errors import Failed
from egressd_lab import netns
from egressd_lab.lab import Lab
from egressd_lab.spec import LAN_ADDRESS, LabSpec
from tests.support.device import SERVER, add_nodes, eventually, port_forward
from tests.support.netns import JoinedNamespace, Namespace, Running
from tests.support.shaping import (
    PAYLOAD,
    PORT,
    Arrivals,
    connect,
    limits_state,
    listen,
    start_tcp,
    tcp,
    udp,
    udp_receive,
    udp_send,
)

pytestmark = [pytest.mark.lab, pytest.mark.alone]

UP, DOWN = 2_000, 4_000
"""Kbps."""
SECONDS = 3.0
GLANCE_S = 1.0
"""Seconds that are enough to see unlimited traffic, which is much faster."""
TARGETS = {1: "ss", 2: "Interface:wan2", 3: "DIRECT"}
BYSTANDER = 4
LIMITED = range(500, 1021)
"""Goodput in thousandths of the limit: see `test_shaping`."""
FAST = 3_000
"""Unlimited goodput exceeds it: thousandths of the limits here."""
GUEST = "10.78.0.11"
HEALED_WITHIN_S = 2.0


class Site:
    """A lab, and the namespaces that traffic is made and measured in."""

    def __init__(self, lab: Lab, stack: ExitStack) -> None:
        def joined(role: str) -> Namespace:
            return stack.enter_context(JoinedNamespace(netns.namespace(lab.name, role)))

        self.lab = lab
        self.internet, self.router = joined("internet"), joined("router")
        if lab.spec.second_lan:
            self.guest = joined("guest1")
        numbers = range(1, lab.spec.clients + 1)
        self._clients = {n: joined(lab.client(n).host.role) for n in numbers}

    def client(self, number: int) -> tuple[Namespace, str]:
        return self._clients[number], self.lab.client(number).address

    def put(self, address: str, target: str, up: int = 0, down: int = 0) -> None:
        """Give an address a rule, or change its rule."""
        body = {
            "ip": address,
            "mac": "",
            "comment": "",
            "is_enabled": True,
            "target_node": target,
            "upload_limit_kbps": up,
            "download_limit_kbps": down,
        }
        known = [rule for rule in self.rules() if rule["ip"] == address]
        if known:
            self.lab.api.put(f"/rules/{known[0]['id']}", body)
        else:
            self.lab.api.post("/rules", body)

    def rules(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.lab.api.get("/rules")["data"]
        return found

    def limit(self, number: int, up: int = UP, down: int = DOWN) -> None:
        self.put(self.lab.client(number).address, TARGETS[number], up, down)

    def tcp(self, number: int, *, upload: bool) -> Arrivals:
        (arrivals,) = self.tcp_of([number], upload=upload).values()
        return arrivals

    def tcp_of(
        self, numbers: Iterable[int], *, upload: bool, flows: int = 1
    ) -> dict[int, Arrivals]:
        """Return the arrivals of `flows` flows of each of these clients, all at the same time."""
        waits = {
            number: start_tcp(
                namespace,
                self.internet,
                address,
                upload=upload,
                flows=flows,
                seconds=SECONDS + 0.5,
                target=SERVER,
                port=PORT + number,
            )
            for number in numbers
            for namespace, address in [self.client(number)]
        }
        return {number: wait() for number, wait in waits.items()}

    def is_fast(self, number: int, *, upload: bool) -> bool:
        """True if a client's TCP is as fast as without a limit."""
        namespace, address = self.client(number)
        seconds = GLANCE_S + 0.2
        arrived = tcp(
            namespace, self.internet, address, upload=upload, seconds=seconds, target=SERVER
        )
        return share(arrived, UP if upload else DOWN, GLANCE_S) > FAST

    def udp_up(self, number: int, kbps: float = 2 * UP, seconds: float = SECONDS) -> Arrivals:
        namespace, address = self.client(number)
        pairs = [(address, SERVER)]
        return udp(namespace, self.internet, pairs, kbps=kbps, seconds=seconds)[0]

    def udp_up_of(
        self, numbers: Iterable[int], kbps: float = 2 * UP, seconds: float = SECONDS
    ) -> dict[int, Arrivals]:
        """Return the arrivals of the flows of these clients, all at the same time."""
        far = self.internet.start(udp_receive, seconds + 1)
        sending = [
            namespace.start(udp_send, [(address, SERVER)], kbps, seconds, PAYLOAD, number)
            for number in numbers
            for namespace, address in [self.client(number)]
        ]
        arrivals = far.result()
        for each in sending:
            each.result()
        return arrivals

    def flood(self, number: int, kbps: float = 2 * UP, seconds: float = 8) -> Running[None]:
        """Start to send UDP, without waiting for it."""
        namespace, address = self.client(number)
        return namespace.start(udp_send, [(address, SERVER)], kbps, seconds)

    def delete(self, address: str) -> None:
        for rule in self.rules():
            if rule["ip"] == address:
                self.lab.api.delete(f"/rules/{rule['id']}")

    def shell(self, script: str) -> str:
        return self.router.shell(script)

    def state(self) -> list[str]:
        return limits_state(self.shell)

    def counters(self) -> dict[str, dict[str, int]]:
        """Return the API's counters of each rule, by its address."""
        found: dict[str, dict[str, int]] = self.lab.api.ask("GET", "/ops/counters").body["data"]
        return found

    def counted(self) -> dict[str, int]:
        """Return class -> packets that it has let pass."""
        found = {}
        for text in self.shell("tc -s class show dev egressd-up0").split("class htb ")[1:]:
            words = text.split()
            found[words[0]] = int(words[words.index("Sent") + 3])
        return found


@pytest.fixture(scope="module")
def site(namespaces: None) -> Iterator[Site]:
    spec = LabSpec(nodes=("ss",), clients=4, second_lan=True)
    with Lab(spec) as lab, ExitStack() as stack:
        lab.start_egressd()
        add_nodes(lab)
        site = Site(lab, stack)
        for number in TARGETS:
            site.limit(number)
        site.put(lab.client(BYSTANDER).address, "DIRECT")
        yield site


def share(arrivals: Arrivals, kbps: int, seconds: float = SECONDS, since: float = 0) -> int:
    """Return goodput in thousandths of a limit."""
    return round(arrivals.rate(seconds, since) / kbps)


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
    eventually(lambda: site.state() == whole, HEALED_WITHIN_S)
    arrived = site.udp_up_of(TARGETS, seconds=1.5)
    assert arrived.keys() == TARGETS.keys()
    assert max(share(each, UP, seconds=1) for each in arrived.values()) <= LIMITED[-1]


def test_a_recreated_lan_is_limited_again(site: Site) -> None:
    site.put(GUEST, "DIRECT", UP, DOWN)
    site.shell("ip link set lan1 down; ip link set lan1 name lan9")
    site.shell("ip link set lan9 name lan1; ip link set lan1 up")
    pairs = [(GUEST, SERVER)]

    def is_limited() -> bool:
        arrived = udp(site.guest, site.internet, pairs, kbps=2 * UP, seconds=1).get(0)
        return arrived is not None and share(arrived, UP, seconds=1) in range(500, 1100)

    eventually(is_limited, 20)


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
