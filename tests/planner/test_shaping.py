"""Speed limits as nftables elements: the limit that a packet meets, and changes of elements."""

from __future__ import annotations

import re
from ipaddress import IPv4Address, IPv4Network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from egressd.model.plan import Limit
from egressd.planner import shaping
from egressd.planner.registry import HTB_TREE_CLASSES, HTB_TREES
from egressd.planner.sets import Elements
from egressd.planner.shaping import DIRECTIONS, DOWNLOAD, UPLOAD, Direction, Hook
from egressd.planner.topology import Topology

KEYS = (
    "0.0.0.0/0",
    "10.0.0.0/24",
    "10.0.0.0/28",
    "10.0.0.8/29",
    "10.0.0.128/25",
    "10.0.0.0",
    "10.0.0.5",
    "10.0.0.9",
    "10.0.0.255",
)
ADDRESSES = [IPv4Address("10.0.0.0") + n for n in (0, 1, 5, 8, 9, 15, 16, 127, 128, 255, 256)]
kbps = st.sampled_from((0, 256, 99_999, 100_000))


@st.composite
def limit_tables(draw: st.DrawFn) -> dict[str, Limit]:
    keys = draw(st.lists(st.sampled_from(KEYS), unique=True))
    numbers = draw(st.permutations(range(1, len(keys) + 1)))
    return {
        key: Limit(number=number, upload_kbps=draw(kbps), download_kbps=draw(kbps))
        for key, number in zip(keys, numbers, strict=True)
    }


def split(limits: dict[str, Limit]) -> tuple[dict[str, Limit], dict[str, Limit]]:
    hosts = {key: limit for key, limit in limits.items() if "/" not in key}
    return hosts, {key: limit for key, limit in limits.items() if "/" in key}


def elements(limits: dict[str, Limit], classes: dict[int, int]) -> Elements:
    hosts, nets = split(limits)
    exceptions = shaping.with_exceptions(nets)
    return {
        **shaping.host_elements(hosts, classes, exceptions),
        **shaping.net_elements(nets, classes),
    }


def classes_of(limits: dict[str, Limit]) -> dict[int, int]:
    """Return a class for each rule with a limit."""
    return {limit.number: 5000 + limit.number for limit in limits.values()}


def found(content: dict[str, str], address: IPv4Address) -> str | None:
    """Return the value of a set for an address; fails if two elements overlap."""
    hits = []
    for key, value in content.items():
        first, _, last = key.partition("-")
        if IPv4Address(first) <= address <= IPv4Address(last or first):
            hits.append(value)
    assert len(hits) <= 1, "elements overlap"
    return hits[0] if hits else None


def verdict(sets: Elements, direction: Direction, address: IPv4Address) -> str:
    """Return the chain's verdict on a client's packet: the class, or ``free``."""
    if found(sets[direction.free_hosts], address) is not None:
        return "free"
    for limited in (direction.hosts, direction.nets):
        if (handle := found(sets[limited], address)) is not None:
            return handle
    return "free"


@given(limit_tables())
def test_the_most_specific_rule_applies(limits: dict[str, Limit]) -> None:
    classes = classes_of(limits)
    sets = elements(limits, classes)
    for direction in DIRECTIONS:
        for address in ADDRESSES:
            covering = [IPv4Network(key) for key in limits if address in IPv4Network(key)]
            expected = "free"
            if covering:
                network = max(covering, key=lambda n: n.prefixlen)
                limit = limits[str(network).removesuffix("/32")]
                if direction.kbps(limit):
                    number = shaping.class_at(classes[limit.number], direction.kbps(limit))
                    expected = f"{shaping.class_handle(number):#x}"
            assert verdict(sets, direction, address) == expected


@given(limit_tables(), limit_tables())
def test_an_update_turns_one_table_into_the_other(
    before: dict[str, Limit], after: dict[str, Limit]
) -> None:
    old, new = elements(before, classes_of(before)), elements(after, classes_of(after))
    text = shaping.NETDEV.update(old, new)
    assert carried_out(old, text) == new
    assert shaping.NETDEV.update(new, new) == ""


def carried_out(sets: Elements, text: str) -> Elements:
    """Return the sets after a script of flush, delete and add commands; like nft, it refuses to
    delete a missing element, and a second value for a key."""
    result = {name: dict(content) for name, content in sets.items()}
    for line in text.splitlines():
        command = re.fullmatch(
            r"(flush|delete|add) (?:set|map|element) netdev egressd (\w+)(?: \{ (.*) \})?", line
        )
        assert command is not None, line
        verb, name, items = command.groups()
        pairs = [item.partition(" : ") for item in items.split(", ")] if items else []
        if verb == "flush":
            result[name].clear()
        for key, _, value in pairs:
            if verb == "delete":
                del result[name][key]
            else:
                assert key not in result[name]
                result[name][key] = value
    return result


def test_hosts_are_exceptions_only_where_a_network_is_limited() -> None:
    hosts = {"10.0.0.5": Limit(number=1, upload_kbps=0, download_kbps=0)}
    nets = {"10.0.0.0/24": Limit(number=2, upload_kbps=0, download_kbps=256)}
    assert shaping.with_exceptions({}) == frozenset()
    assert shaping.with_exceptions(nets) == {DOWNLOAD}
    sets = shaping.host_elements(hosts, {}, {DOWNLOAD})
    assert sets["down_free_hosts"] == {"10.0.0.5": ""}
    assert sets["up_free_hosts"] == {}


def test_every_rule_counts_at_an_element_of_its_own() -> None:
    sets = shaping.count_elements(["10.0.0.5"], ["10.0.0.0-10.0.0.4"])
    assert set(sets) == set(shaping.COUNT_SETS)
    assert sets["sent"] == sets["received"] == {"10.0.0.5": ""}
    assert sets["sent_nets"] == sets["received_nets"] == {"10.0.0.0-10.0.0.4": ""}


def test_the_change_of_a_host_is_one_element() -> None:
    before = {f"10.0.{n}.1": Limit(number=n, upload_kbps=9, download_kbps=9) for n in range(1, 200)}
    now = {"10.0.7.1": Limit(number=7, upload_kbps=9, download_kbps=0)}
    classes = classes_of(before)
    old = shaping.host_elements({"10.0.7.1": before["10.0.7.1"]}, classes, DIRECTIONS)
    text = shaping.NETDEV.update(old, shaping.host_elements(now, classes, DIRECTIONS))
    assert text == (
        "delete element netdev egressd down_hosts { 10.0.7.1 }\n"
        "add element netdev egressd down_free_hosts { 10.0.7.1 }\n"
    )


def test_traffic_to_the_router_and_between_clients_is_not_limited() -> None:
    topology = Topology(
        lans=("lan0", "lan1"),
        lan_networks=(
            ("lan0", IPv4Network("10.0.0.0/24")),
            ("lan1", IPv4Network("10.0.1.0/24")),
        ),
        router_addresses=(IPv4Address("10.0.0.1"), IPv4Address("203.0.113.7")),
    )
    assert shaping.local_elements(topology) == {
        "local": {
            "10.0.0.0-10.0.1.255": "",
            "203.0.113.7": "",
            "224.0.0.0-239.255.255.255": "",
            "255.255.255.255": "",
        }
    }


NETWORKS = (IPv4Network("10.0.0.0/23"), IPv4Network("10.9.0.0/16"))


def rules(text: str, chain: str) -> list[str]:
    start = f"add rule netdev egressd {chain} "
    return [line.removeprefix(start) for line in text.splitlines() if line.startswith(start)]


def test_chains_match_each_lan_by_its_index() -> None:
    text = shaping.chains([Hook(3, "lan0"), Hook(7, "eth1.20")], NETWORKS, ["up_2"])
    lines = text.splitlines()
    assert "delete chain netdev egressd up_2" in lines
    hook = 'type filter hook ingress device "eth1.20" priority 0;'
    assert [line for line in lines if line.startswith(f"add chain netdev egressd up_7 {{ {hook}")]
    hook = 'type filter hook egress device "lan0" priority 0;'
    assert [line for line in lines if line.startswith(f"add chain netdev egressd down_3 {{ {hook}")]
    assert rules(text, "down_3") == ["goto down"]


def test_traffic_through_a_lan_to_another_is_matched_there() -> None:
    text = shaping.chains([Hook(3, "lan0", NETWORKS[1:]), Hook(7, "lan0.20")], NETWORKS, [])
    assert rules(text, "up_3") == ["ip saddr 10.9.0.0/16 accept", "goto up"]
    assert rules(text, "down_3") == ["ip daddr 10.9.0.0/16 accept", "goto down"]
    assert rules(text, "up_7") == ["goto up"]


def test_a_wider_network_above_exempts_no_network_of_the_lan() -> None:
    wide, shared = IPv4Network("10.0.0.0/8"), IPv4Network("10.1.1.0/24")
    hook = Hook(3, "lan0", above=(wide, shared, NETWORKS[1]), own=(NETWORKS[0], shared))
    assert rules(shaping.chains([hook], NETWORKS, []), "up_3") == [
        "ip saddr 10.1.1.0/24 goto up",
        "ip saddr 10.0.0.0/23 goto up",
        "ip saddr 10.9.0.0/16 accept",
        "ip saddr 10.0.0.0/8 accept",
        "goto up",
    ]


def test_an_unlimited_host_is_accepted_before_limits_are_looked_up() -> None:
    text = shaping.chains([Hook(3, "lan0")], NETWORKS, [])
    assert rules(text, "up") == [
        "ip daddr 10.0.0.0/23 accept",
        "ip daddr 10.9.0.0/16 accept",
        "ip saddr @up_free_hosts accept",
        "meta priority set ip saddr map @up_hosts goto up_limited",
        "meta priority set ip saddr map @up_nets goto up_limited",
    ]
    assert rules(text, "down_limited") == [
        "ip saddr @local meta priority set 0 accept",
        "fwd to meta priority & 0xffff0000 map @down_devices",
    ]


def test_many_lan_networks_are_looked_up() -> None:
    many = [IPv4Network((10 << 24 | number << 9, 24)) for number in range(5)]
    text = shaping.chains([], many, [])
    assert rules(text, "up")[:2] == ["ip daddr @local accept", "ip saddr @up_free_hosts accept"]
    topology = Topology(lan_networks=(("lan0", NETWORKS[1]), ("lan0", NETWORKS[1].supernet())))
    assert shaping.lan_networks(topology) == (IPv4Network("10.8.0.0/15"),)


def test_a_tree_is_the_upper_half_of_a_class() -> None:
    devices = shaping.device_elements({UPLOAD: {0: 11, 5: 12}, DOWNLOAD: {}})
    assert devices == {"up_devices": {"0x65000000": "11", "0x65050000": "12"}, "down_devices": {}}
    number = 5 * HTB_TREE_CLASSES + 17
    assert f"{shaping.class_handle(number) & 0xFFFF_0000:#x}" in devices["up_devices"]
    assert shaping.tree_of(number) == 5


@given(st.integers(0, HTB_TREES * HTB_TREE_CLASSES - 1), kbps)
def test_a_class_is_identified_by_its_handle(given: int, limit_kbps: int) -> None:
    number = shaping.class_at(given, limit_kbps)
    handle = shaping.class_handle(number)
    assert shaping.class_number(handle) == number
    assert shaping.given_number(number) == given
    assert handle & 0xFFFF_0000 == shaping.tree_handle(shaping.tree_of(number))


def test_high_limits_are_in_trees_that_do_not_split_packets() -> None:
    for number in (1, HTB_TREES * HTB_TREE_CLASSES - 1):
        low, high = (shaping.class_at(number, kbps) for kbps in (99_999, 100_000))
        assert shaping.splits(shaping.tree_of(low))
        assert not shaping.splits(shaping.tree_of(high))


def test_whole_packets_may_wait_as_long_as_parts_do() -> None:
    assert shaping.shape(99_999).queue_bytes == 0
    fifth_of_a_second = 100_000 * 125 * 1514 // 1500 // 5
    assert shaping.shape(100_000).queue_bytes == fifth_of_a_second
    assert shaping.shape(10_000_000).queue_bytes == 16_000_000


@pytest.mark.parametrize("limit_kbps", [1, 64, 256, 2_000, 200_000, 10_000_000])
def test_a_shape_gives_full_sized_packets_exactly_the_limit(limit_kbps: int) -> None:
    shape = shaping.shape(limit_kbps)
    of_ip_packets = shape.rate * 1500 / 1514 * 8
    assert of_ip_packets == pytest.approx(limit_kbps * 1000, rel=0.01)
    assert of_ip_packets <= limit_kbps * 1000
    assert 1514 <= shape.burst <= max(1514, shape.rate * 0.02)
    assert 10 <= shape.queue <= 1000
