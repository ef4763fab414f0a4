"""Speed limits on the kernel that change, are damaged and repaired, and count their packets."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Iterator
from ipaddress import IPv4Network

import pytest
from msgspec.structs import replace

from egressd.model.errors import Failed
from egressd.model.messages import RuleCount
from egressd.model.plan import Patch
from egressd.netd.kernel.netlink import Message
from egressd.netd.kernel.nft import Nft
from egressd.netd.kernel.tc import ForeignShaping, Shaper
from egressd.planner.topology import Topology
from tests.lab.shaped import (
    CLIENT,
    FULL,
    GUEST,
    HIGH,
    KBPS,
    OTHER,
    WHOLE,
    classes,
    in_router,
    is_fast,
    send_down,
    send_up,
    share,
    shell,
    upload,
    without_limits,
)
from tests.support.netns import eventually
from tests.support.shaping import (
    PAYLOAD,
    SERVER,
    TOPOLOGY,
    Arrivals,
    Site,
    limit,
    limits_state,
    udp_receive,
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


# --- Changing. -----------------------------------------------------------------------------


def test_a_change_does_not_affect_other_classes(site: Site) -> None:
    before = {CLIENT: limit(1, KBPS, KBPS), OTHER: limit(2, KBPS, KBPS)}
    site.limit(before)
    send_up(site, 2 * KBPS, OTHER, seconds=0.5)

    def change(shaper: Shaper) -> tuple[dict[str, str], dict[str, str]]:
        was = classes()
        shaper.change(Patch(put={CLIENT: limit(1, 2 * KBPS), "10.77.1.9": limit(9, 512)}))
        shaper.change(Patch(put={"10.77.1.0/24": limit(10, 700)}, drop=("10.77.1.9",)))
        return was, classes()

    was, now = in_router(site, change, before)
    assert len(was) == 2
    assert len(now) == 3
    (busy,) = (name for name, text in was.items() if not text.endswith(" 0 bytes"))
    assert now[busy] == was[busy], "a class that did not change keeps its counts"
    assert share(upload(site), 2 * KBPS) in FULL
    assert is_fast(site, upload=False)


def test_a_change_affects_an_existing_flow_at_once(site: Site) -> None:
    before = {CLIENT: limit(1, KBPS, KBPS)}
    site.limit(before)
    far = site.server.start(udp_receive, 4)
    sending = site.client.start(udp_send, [(CLIENT, SERVER)], 3 * KBPS, 4)
    time.sleep(1.7)
    in_router(site, lambda s: s.change(Patch(put={CLIENT: limit(1, 2 * KBPS)})), before)
    arrived = far.result()[0]
    sending.result()
    assert share(arrived, seconds=1) in FULL
    assert share(Arrivals(arrived.buckets[-30:-10]), 2 * KBPS, seconds=1) in FULL
    assert arrived.peak() < 1.15 * 2 * KBPS * 1000


def test_a_limit_that_becomes_high_or_low_is_effective_at_once(site: Site) -> None:
    before = {CLIENT: limit(1, KBPS, KBPS), OTHER: limit(2, HIGH, KBPS)}
    site.limit(before)
    far = site.server.start(udp_receive, 7)
    sending = site.client.start(udp_send, [(CLIENT, SERVER)], 3 * KBPS, 6)

    def change(shaper: Shaper) -> None:
        others = classes("egressd-up64").keys()
        for is_high in (True, False):
            time.sleep(1.9)
            shaper.change(Patch(put={CLIENT: limit(1, HIGH if is_high else KBPS, KBPS)}))
            assert (len(classes()), len(classes("egressd-up64"))) == (1 - is_high, 1 + is_high)
            assert classes("egressd-up64").keys() >= others
            assert len(classes("egressd-down0")) == 2
        assert shaper.sync(before, TOPOLOGY) == 0

    in_router(site, change, before)
    arrived = far.result()[0]
    sending.result()
    assert share(arrived, seconds=1) in FULL
    assert share(Arrivals(arrived.buckets[50:70]), 3 * KBPS, seconds=1) in FULL
    assert share(Arrivals(arrived.buckets[-30:-10]), seconds=1) in FULL


def test_a_change_without_differences_does_nothing(site: Site) -> None:
    limits = {CLIENT: limit(1, KBPS, KBPS), "10.77.2.0/24": limit(2, 1000), OTHER: limit(3)}
    site.limit(limits)

    def repeat(shaper: Shaper) -> int:
        shaper.change(Patch(put=limits))
        return shaper.sync(limits, TOPOLOGY) + shaper.refresh(TOPOLOGY)

    assert in_router(site, repeat, limits) == 0


def test_a_change_succeeds_after_foreign_damage(site: Site) -> None:
    before = {CLIENT: limit(1, KBPS), OTHER: limit(2), "10.77.2.0/24": limit(3)}

    def change(shaper: Shaper) -> int:
        shell("nft flush ruleset; tc qdisc del dev egressd-up0 root")
        shaper.change(Patch(put={CLIENT: limit(1, KBPS, 700), OTHER: limit(2, 800)}))
        return shaper.sync({**before, CLIENT: limit(1, KBPS, 700), OTHER: limit(2, 800)}, TOPOLOGY)

    assert in_router(site, change, before) == 0
    assert share(upload(site)) in FULL


def test_an_impossible_change_is_refused_and_changes_nothing(site: Site) -> None:
    before = {CLIENT: limit(1, KBPS), "10.77.2.0/24": limit(2, 512)}

    def change(shaper: Shaper) -> int:
        # Another program's device takes the place of the second tree.
        shell("ip link add egressd-down0 type bridge")
        with pytest.raises(Failed, match="egressd-down0"):
            shaper.change(Patch(put={CLIENT: limit(1, 99, 99)}, drop=("10.77.2.0/24",)))
        shell("ip link del egressd-down0")  # it still exists
        return shaper.sync(before, TOPOLOGY)

    assert in_router(site, change, before) == 0
    assert share(upload(site)) in FULL


def test_more_limits_than_there_are_classes_are_refused(site: Site) -> None:
    before = {CLIENT: limit(1, KBPS)}
    many = {f"10.{n >> 16}.{n >> 8 & 255}.{n & 255}": limit(n, 1) for n in range(2, 1 << 16)}

    def change(shaper: Shaper) -> dict[str, str]:
        with pytest.raises(Failed, match="65535 rules are limited"):
            shaper.change(Patch(put=many))
        return classes()

    assert len(in_router(site, change, before)) == 1


# --- Starting again, and healing. ----------------------------------------------------------


def test_a_new_netd_adopts_existing_classes_and_counters(site: Site) -> None:
    limits = {
        "10.77.1.4": limit(4, 100),
        CLIENT: limit(1, KBPS, KBPS),
        "10.77.2.0/24": limit(7, KBPS),
        "10.77.1.5": limit(8, HIGH, KBPS),
        OTHER: limit(3),
    }
    site.limit(limits)
    site.limit({key: limits[key] for key in list(limits)[1:]})
    send_up(site, 2 * KBPS, CLIENT, "10.77.2.1", "10.77.1.5", seconds=0.5)
    was = {device: site.router.run(classes, device) for device in ("egressd-up0", "egressd-up64")}
    for device, number in (("egressd-up0", 2), ("egressd-up64", 1)):
        assert sum(not text.endswith(" 0 bytes") for text in was[device].values()) == number
    site.limit({key: limits[key] for key in reversed(limits)})
    for device, before in was.items():
        now = site.router.run(classes, device)
        assert {name: now[name] for name in before} == before


@pytest.mark.parametrize(
    "damage",
    [
        "tc qdisc del dev egressd-up0 root",
        "tc qdisc replace dev egressd-up0 root pfifo",
        "tc qdisc del dev egressd-up0 parent 6600:1",
        "tc qdisc del dev egressd-down64 root",
        "tc qdisc replace dev egressd-down64 root pfifo",
        "tc qdisc del dev egressd-down64 parent 6540:1",
        "ip link del egressd-down64",
        "tc class del dev egressd-up0 classid 6500:1",
        "tc class change dev egressd-up0 parent root classid 6500:1 htb rate 1gbit",
        "tc class add dev egressd-up0 parent root classid 6500:99 htb rate 1gbit",
        "tc qdisc del dev egressd-up0 parent 6500:1",
        "tc qdisc replace dev egressd-up0 parent 6500:1 handle 5: bfifo limit 1",
        "tc qdisc change dev egressd-up0 parent 6500:1 handle 1: pfifo limit 1",
        "ip link del egressd-up0",
        "ip link set egressd-up0 down",
        "nft flush ruleset",
        "nft delete element netdev egressd up_hosts { 10.77.1.2 }",
        "nft add element netdev egressd up_free_hosts { 10.77.1.2 }",
        "nft delete element inet egressd sent { 10.77.1.2 }",
        "nft flush map netdev egressd up_devices",
        "nft flush set netdev egressd local",
        "nft insert rule netdev egressd up accept",
    ],
)
def test_foreign_damage_is_repaired(site: Site, damage: str) -> None:
    limits = {CLIENT: limit(1, KBPS, HIGH), "10.77.0.0/16": limit(2, 100)}

    def heal(shaper: Shaper) -> None:
        whole = limits_state(shell)
        shell(damage)
        assert limits_state(shell) != whole
        assert shaper.sync(limits, TOPOLOGY) > 0
        assert limits_state(shell) == whole
        assert shaper.sync(limits, TOPOLOGY) == 0
        assert shaper.refresh(TOPOLOGY) == 0

    in_router(site, heal, limits)
    # Half a second of traffic, and the queue.
    passed = send_up(site, 2 * KBPS, CLIENT, seconds=0.5)[0].peak()
    assert 0.4 * KBPS * 1000 < passed < 0.75 * KBPS * 1000


def test_a_check_repairs_obvious_damage_and_changes_nothing_else(site: Site) -> None:
    limits = {CLIENT: limit(1, KBPS)}

    def look(shaper: Shaper) -> list[int]:
        shell("nft add table inet other; nft delete table inet other")
        looks = [shaper.refresh(TOPOLOGY)]
        for damage in ("tc qdisc del dev egressd-up0 root", "nft flush ruleset"):
            shell(damage)
            looks += [shaper.refresh(TOPOLOGY), shaper.refresh(TOPOLOGY)]
        return looks

    unchanged, *looks = in_router(site, look, limits)
    assert unchanged == 0
    assert [look > 0 for look in looks] == [True, False, True, False]


def test_chains_follow_the_lans_in_use(site: Site) -> None:
    limits = {CLIENT: limit(1, KBPS)}
    first = Topology(lans=TOPOLOGY.lans[:1], lan_networks=TOPOLOGY.lan_networks)

    def move(shaper: Shaper) -> list[list[str]]:
        chains = []
        for adapt in (lambda t: shaper.sync(limits, t), shaper.refresh):
            for topology in (first, TOPOLOGY):
                assert adapt(topology) > 0
                assert adapt(topology) == 0
                chains.append(re.findall(r'device "(\w+)"', shell("nft list table netdev egressd")))
        return chains

    both = sorted(["lan0", "lan1"] * 2)
    assert [sorted(found) for found in in_router(site, move, limits)] == [both[:2], both] * 2


def test_deleted_and_recreated_lans_are_limited() -> None:
    with Site() as site:
        limits = {CLIENT: limit(1, KBPS), "10.78.0.0/16": limit(2, KBPS)}

        def take_away(shaper: Shaper) -> None:
            shell("ip link del lan1")
            shaper.refresh(TOPOLOGY)
            shell(
                """
                ip link add lan1 type bridge; ip link set lan1 up
                ip link set port1 master lan1
                ip address add 10.78.0.1/24 dev lan1
                ip route add 10.78.0.0/16 via 10.78.0.254 dev lan1
                """
            )
            shaper.refresh(TOPOLOGY)
            assert shaper.refresh(TOPOLOGY) == 0

        in_router(site, take_away, limits)
        assert share(upload(site)) in FULL
        assert share(upload(site, GUEST)) in FULL


def test_clients_of_a_lan_on_another_lan_have_their_whole_limit() -> None:
    """A VLAN and its parent may both be LANs: a packet passes both. Past fault: clients on a VLAN
    had half their limit, because their packets were queued on both interfaces.
    """
    source = "10.79.0.2"
    topology = replace(
        TOPOLOGY,
        stacked=(("lan0", "above"),),
        lans=(*TOPOLOGY.lans, "above"),
        lan_networks=(*TOPOLOGY.lan_networks, ("above", IPv4Network("10.79.0.0/24"))),
    )
    with Site() as site:
        # Some kernels that tests run on have no VLANs.
        site.router.shell(
            """
            sysctl -qw net.ipv4.conf.all.arp_ignore=1  # each answers for its own address
            ip link add link lan0 name above type macvlan mode bridge; ip link set above up
            ip address add 10.79.0.1/24 dev above
            """
        )
        site.client.shell(
            f"""
            ip address add {source}/24 dev eth0
            ip rule add from {source} lookup 79; ip route add default via 10.79.0.1 table 79
            """
        )
        site.topology = topology
        site.limit({source: limit(1, KBPS, KBPS), CLIENT: limit(2, KBPS, KBPS)})
        arrived = send_up(site, 2 * KBPS, source, CLIENT)
        assert share(arrived[0]) in WHOLE
        assert share(arrived[1]) in WHOLE, "the parent's own"
        assert share(send_down(site, 2 * KBPS, source)[0]) in WHOLE


class Watched(ForeignShaping):
    """Counts its wake-ups by the kernel, and keeps its reports."""

    def __init__(self, shaper: Shaper) -> None:
        super().__init__(shaper, self.note)
        self.reasons: list[str] = []
        self.woken = 0

    async def note(self, reason: str) -> None:
        self.reasons.append(reason)

    def _heard(self, heard: list[Message], lost: bool) -> None:
        self.woken += 1
        super()._heard(heard, lost)


def test_only_foreign_changes_of_our_queues_are_reported(site: Site) -> None:
    limits = {CLIENT: limit(1, KBPS)}

    async def watch() -> None:
        shaper = Shaper(Nft())
        shaper.sync(limits, site.topology)
        async with Watched(shaper) as watched:
            shaper.change(Patch(put={OTHER: limit(2, KBPS)}, drop=(CLIENT,)))
            shaper.sync(limits, TOPOLOGY)
            await asyncio.sleep(0.2)
            assert watched.woken == 0, "our own changes don't wake us"
            shell("tc qdisc add dev wan0 root pfifo; tc qdisc del dev wan0 root")
            await eventually(lambda: watched.woken > 0)
            await asyncio.sleep(0.2)
            assert not watched.reasons, "other devices are not ours"
            shell("tc class del dev egressd-up0 classid 6500:1")
            await eventually(lambda: bool(watched.reasons))
            told = len(watched.reasons)
            shell("tc qdisc del dev egressd-up0 root")
            await eventually(lambda: len(watched.reasons) > told)

    site.router.run_async(watch)


# --- Counting. -----------------------------------------------------------------------------


@pytest.fixture
def counting_site(site: Site) -> Iterator[Site]:
    """Yield a site whose packets pass the counting sets, as they do in egressd's chains."""
    site.limit({CLIENT: limit(1)})
    chains = "".join(
        f"""
        add chain inet egressd test_{name} {{ type filter hook {hook} priority 0; }}
        add rule inet egressd test_{name} ip {field} @{name} accept
        add rule inet egressd test_{name} ip {field} @{name}_nets accept
        """
        for name, hook, field in (
            ("sent", "prerouting", "saddr"),
            ("received", "postrouting", "daddr"),
        )
    )
    site.router.shell(f"nft -f - <<'END'\n{chains}\nEND")
    yield site
    for name in ("sent", "received"):
        site.router.shell(f"nft delete chain inet egressd test_{name}")


def test_every_rule_is_counted_in_both_directions(counting_site: Site) -> None:
    site = counting_site
    limits = {
        CLIENT: limit(1, KBPS, KBPS),
        OTHER: limit(2),
        "10.77.1.4": limit(3, upload=KBPS),
        "10.77.2.0/23": limit(4, KBPS, KBPS),
        "10.77.128.0/18": limit(5),
        "10.77.129.0/24": limit(6, download=KBPS),
    }
    site.client.shell("ip route replace local 10.77.2.0/23 dev lo")
    site.limit(limits)
    sources = (CLIENT, OTHER, "10.77.1.4", "10.77.3.9", "10.77.130.1", "10.77.129.1")
    send_up(site, 100, *sources, seconds=0.5)
    send_down(site, 200, *sources, seconds=0.5)
    counted = in_router(site, Shaper.counters, limits)
    assert sorted(counted) == [1, 2, 3, 4, 5, 6]
    for counts in counted.values():
        assert counts.up_packets in range(3, 6)
        assert counts.down_packets in range(7, 11)
        assert counts.up_bytes == counts.up_packets * (PAYLOAD + 28)
        assert counts.down_bytes == counts.down_packets * (PAYLOAD + 28)


def test_counters_survive_changes_of_the_rule(counting_site: Site) -> None:
    site = counting_site
    limits = {CLIENT: limit(1), OTHER: limit(2, KBPS, HIGH), "10.77.128.0/24": limit(3)}
    site.limit(limits)
    sources = (CLIENT, OTHER, "10.77.128.1")
    send_up(site, 100, *sources, seconds=0.5)
    send_down(site, 200, *sources, seconds=0.5)

    def change(shaper: Shaper) -> list[dict[int, RuleCount]]:
        seen = [shaper.counters()]
        shaper.change(Patch(put={CLIENT: limit(1, KBPS, KBPS), OTHER: limit(2, KBPS, KBPS)}))
        seen.append(shaper.counters())
        shaper.change(Patch(put={CLIENT: limit(1, KBPS, HIGH), OTHER: limit(2)}))
        seen.append(shaper.counters())
        shaper.change(
            Patch(put={"10.77.128.0/17": limit(4), "10.77.1.7": limit(1)}, drop=(CLIENT,))
        )
        seen.append(shaper.counters())
        shaper.change(Patch(put={CLIENT: limit(5)}, drop=(OTHER, "10.77.1.7")))
        seen.append(shaper.counters())
        return seen

    first, *later = in_router(site, change, limits)
    assert all(counts.up_packets in range(3, 6) for counts in first.values())
    assert all(counts.down_packets in range(7, 11) for counts in first.values())
    for counted in later[:-1]:
        assert {rule: counted[rule] for rule in first} == first
    assert sorted(later[-1]) == [3, 4, 5]
    assert later[-1][5] == RuleCount(0, 0, 0, 0)
