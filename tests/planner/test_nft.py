"""The text for nftables: whole tables, and the minimal text of a change."""

from collections.abc import Collection
from ipaddress import IPv4Address, IPv4Network

import msgspec
import pytest

from egressd.model.nouns import Line
from egressd.model.plan import (
    Change,
    Egress,
    GlobalPolicy,
    Group,
    Patch,
    Plan,
    WhitelistPlan,
)
from egressd.planner import lease_rules, nft
from egressd.planner.chains import CHAINS, MAPS, RETIRED, RETIRED_MAPS
from egressd.planner.groups import SLOTS, Choice
from egressd.planner.registry import MARK_DIRECT
from egressd.planner.resolvers import Resolver
from egressd.planner.sets import Elements
from egressd.planner.topology import Topology
from tests.support.nodes.instances import node_instance, service_instance

ONE_LAN = Topology(
    lans=("lan0",),
    lan_networks=(("lan0", IPv4Network("10.77.0.0/24")),),
    wans=("wan1", "wan2"),
    direct_exits=("wan1", "wan2"),
    routable=("wan1",),
)
TWO_LANS = Topology(
    lans=("lan0", "lan1"),
    lan_networks=(
        ("lan0", IPv4Network("10.77.0.0/24")),
        ("lan1", IPv4Network("10.78.0.0/24")),
    ),
    wans=("wan1",),
    direct_exits=("wan1",),
    routable=("wan1",),
)
PLAN = Plan(
    policy=GlobalPolicy(resolvers=("192.0.2.53",)),
    whitelist=WhitelistPlan(mark=0x3000_0000, ranges=("192.0.2.0-192.0.2.255",)),
    hosts={"10.77.0.11": 0x1000_0001, "10.77.0.12": 0x3000_0000},
    nets={"10.77.0.64-10.77.0.127": 0x2000_0001, "10.77.0.9-10.77.0.9": 0x4000_0000},
    instances={
        "node:1": node_instance(1, udp=False),
        "node:2": node_instance(2),
    },
    egresses={"wan1": Egress(number=1, resolvers=("192.0.2.54",))},
)


def wanted() -> Elements:
    return nft.elements(PLAN, ONE_LAN, {"node:1": 20_000})


def test_a_target_without_a_port_forwards_nothing() -> None:
    assert wanted()["ports"] == {"0x10000001": "20000"}
    assert "0x10000002 . 0x10000002" not in wanted()["allowed_connmarks"]


def test_an_egress_that_is_down_is_not_alive() -> None:
    assert wanted()["alive"] == {"0x20000001": "", "0x30000000": ""}
    assert '0x20007001 . "wan2"' in wanted()["pairs"]


def test_a_stopped_device_has_no_clients() -> None:
    stopped = Plan(policy=GlobalPolicy(stopped=True, unmanaged=0x3000_0000), hosts=PLAN.hosts)
    elements = nft.elements(stopped, ONE_LAN, {})
    assert elements["hosts"] == elements["nets"] == elements["dflt"] == {}


def test_an_opened_device_has_clients_without_a_rule_only() -> None:
    opened = Plan(policy=GlobalPolicy(opened=True, unmanaged=0x3000_0000), hosts=PLAN.hosts)
    elements = nft.elements(opened, ONE_LAN, {})
    assert elements["hosts"] == elements["nets"] == {}
    assert set(elements["dflt"].values()) == {"0x30000000"}


def test_a_moved_host_is_one_element_out_and_one_in() -> None:
    change = Change(base=0, revision=1, hosts=Patch(put={"10.77.0.11": 0x3000_0000}))
    assert nft.host_update(PLAN.hosts, change).script() == (
        "delete element inet egressd hosts { 10.77.0.11 }\n"
        "add element inet egressd hosts { 10.77.0.11 : 0x30000000 }\n"
    )


def test_a_new_and_a_deleted_host_are_one_element_each() -> None:
    change = Change(
        base=0,
        revision=1,
        hosts=Patch(put={"10.77.0.13": 0x3000_0000}, drop=("10.77.0.12", "10.77.0.99")),
    )
    assert nft.host_update(PLAN.hosts, change).script() == (
        "delete element inet egressd hosts { 10.77.0.12 }\n"
        "add element inet egressd hosts { 10.77.0.13 : 0x30000000 }\n"
    )


def test_no_difference_is_no_transaction() -> None:
    assert nft.INET.update(wanted(), wanted()) == ""


def test_sets_are_updated_by_element_and_interval_sets_as_a_whole() -> None:
    after = nft.elements(PLAN, ONE_LAN, {"node:1": 20_001})
    after["nets"] = {"10.77.0.9": "0x40000000"}
    assert nft.INET.update(wanted(), after) == (
        "flush map inet egressd nets\n"
        "add element inet egressd nets { 10.77.0.9 : 0x40000000 }\n"
        "delete element inet egressd ports { 0x10000001 }\n"
        "add element inet egressd ports { 0x10000001 : 20001 }\n"
    )


def test_a_table_is_never_deleted() -> None:
    text = nft.load(wanted())
    deleted = [line for line in text.splitlines() if line.startswith("delete ")]
    chains = [f"delete chain inet egressd {name}" for name in RETIRED]
    assert deleted == chains + [f"delete map inet egressd {name}" for name in RETIRED_MAPS]
    assert not set(RETIRED) & set(CHAINS)
    assert not set(RETIRED_MAPS) & set(MAPS)
    assert "flush table" not in text


def test_a_plan_without_a_lease_has_no_word_of_a_gate() -> None:
    assert not any(name in nft.load(wanted()) for name in ("lease", *lease_rules.GATED))


def test_each_rule_of_the_gate_closes_where_there_is_no_lease() -> None:
    """Inside the gate's own chains there is no lease; all other rules of it look."""
    gated = nft.load(wanted(), is_gated=True).splitlines()
    added = [line for line in gated if line not in nft.load(wanted()).splitlines()]
    rules = [line.removeprefix("add rule inet egressd ") for line in added if " rule " in line]
    outside = [rule for rule in rules if not rule.startswith("unleased")]
    assert len(outside) >= 8
    assert all("meta nfproto != @lease " in line for line in outside)
    assert not any("reject" in line or "deny" in line for line in added)


def test_the_gate_is_ahead_of_known_flows() -> None:
    lines = nft.load(wanted(), is_gated=True).splitlines()
    first = next(line for line in lines if line.startswith("add rule inet egressd from_lan "))
    assert first.endswith("meta nfproto != @lease goto unleased")


def test_a_gate_is_removed_after_all_rules_that_lead_to_it() -> None:
    lines = nft.load(wanted(), had_gate=True).splitlines()
    deleted = [line.split()[-1] for line in lines if line.startswith("delete ")]
    assert {*deleted} == {*RETIRED, *RETIRED_MAPS, *lease_rules.GATED}
    assert lines.index("flush chain inet egressd from_lan") < lines.index(
        "delete chain inet egressd unleased"
    )


def test_a_single_lan_is_compared_and_several_are_looked_up() -> None:
    one = nft.load(nft.elements(PLAN, ONE_LAN, {}))
    two = nft.load(nft.elements(PLAN, TWO_LANS, {}))
    assert 'iifname "lan0" goto from_lan' in one
    assert "ip saddr 10.77.0.0/24 drop" in one
    assert "iifname @lanif goto from_lan" in two
    assert "ip saddr @lannet drop" in two


def test_an_added_lan_needs_a_whole_load() -> None:
    one = nft.elements(PLAN, ONE_LAN, {})
    assert nft.needs_load(one, nft.elements(PLAN, TWO_LANS, {}))
    assert not nft.needs_load(one, nft.elements(PLAN, ONE_LAN, {"node:1": 20_000}))


def test_packets_not_taken_by_the_engine_are_denied() -> None:
    lines = nft.load(wanted()).splitlines()
    engine = [line for line in lines if line.startswith("add rule inet egressd engine ")]
    assert "tproxy" in engine[-2]
    assert engine[-1].endswith("goto deny")


# --- VPN lines. -----------------------------------------------------------------------------

ON_A_LINE = Topology(
    lans=("lan0",),
    lan_networks=(("lan0", IPv4Network("10.77.0.0/24")),),
    wans=("wan1",),
    direct_exits=("wan1",),
    routable=("wan1", "l2tp_a"),
)
LINE_A, DIRECTLY = "0x20008002", "0x30000001"


def by_line(
    *,
    egress: Egress,
    is_wanted: bool = True,
    peers: tuple[str, ...] = (),
    silent: Collection[Resolver] = (),
    outdated: tuple[str, ...] = (),
) -> Elements:
    line = Line(id=1, type="l2tp", name="l2tp_a", server="s", port=1701, username="u", password="p")
    plan = Plan(
        policy=GlobalPolicy(resolvers=("192.0.2.53",)),
        egresses={"l2tp_a": egress},
        lines={"l2tp_a": line} if is_wanted else {},
    )
    peer_dns = {"l2tp_a": peers} if peers else {}
    return nft.elements(plan, ON_A_LINE, {}, peer_dns=peer_dns, silent=silent, outdated=outdated)


def test_mss_is_clamped_on_a_line_and_not_on_a_wan() -> None:
    pairs = by_line(egress=Egress(number=2))["pairs"]
    assert pairs[f'{LINE_A} . "l2tp_a"'] == "goto to_narrow"
    assert pairs['0x20007000 . "wan1"'] == pairs['0x30000000 . "wan1"'] == "accept"


def test_mss_is_clamped_on_a_wan_with_a_small_mtu() -> None:
    topology = msgspec.structs.replace(TWO_LANS, narrow=("wan1",))
    plan = Plan(egresses={"wan1": Egress(number=1), "wan2": Egress(number=2)})
    pairs = nft.elements(plan, topology, {})["pairs"]
    clamped = {pair for pair, verdict in pairs.items() if verdict == "goto to_narrow"}
    assert clamped == {pair for pair in pairs if pair.endswith(' . "wan1"')}
    assert '0x30000000 . "wan1"' in clamped


def test_networks_inside_another_are_omitted() -> None:
    networks = ("10.77.0.254/32", "10.77.0.0/24", "10.0.0.0/8", "192.168.1.0/24")
    topology = Topology(
        lans=("lan0", "lan1"),
        lan_networks=(
            *(("lan0", IPv4Network(network)) for network in networks),
            ("lan1", IPv4Network("10.77.0.0/24")),
        ),
    )
    elements = nft.elements(Plan(), topology, {})
    assert list(elements["lannet"]) == ["10.0.0.0/8", "192.168.1.0/24"]
    assert list(elements["lansrc"]) == [
        '"lan0" . 10.0.0.0/8',
        '"lan0" . 192.168.1.0/24',
        '"lan1" . 10.77.0.0/24',
    ]


def test_answers_to_inbound_flows_leave_by_their_wan_even_without_rules() -> None:
    for egresses in ({}, {"wan1": Egress(number=1)}):
        elements = nft.elements(Plan(egresses=egresses), TWO_LANS, {})
        assert elements["inmark"] == {'"wan1"': "0x20007000"}
        assert elements["pairs"]['0x20007000 . "wan1"'] == "accept"


def test_a_lan_is_an_egress_if_it_is_routable() -> None:
    names = ("lo", "lan0", "lan1", "wan1")
    plan = Plan(egresses={name: Egress(number=n) for n, name in enumerate(names, 1)})
    topology = msgspec.structs.replace(TWO_LANS, routable=("lan1", "wan1"))
    pairs = nft.elements(plan, topology, {})["pairs"]
    assert {name for name in names if f'0x2000000{names.index(name) + 1} . "{name}"' in pairs} == {
        "lan1",
        "wan1",
    }


def test_an_unwanted_line_with_an_interface_is_no_egress() -> None:
    elements = by_line(egress=Egress(number=2), is_wanted=False)
    assert LINE_A not in elements["alive"]
    assert not [pair for pair in elements["pairs"] if "l2tp_a" in pair]


def test_a_line_from_before_an_edit_is_no_egress() -> None:
    """Past fault: for up to 2 s after an edit of a line its clients used the old server."""
    elements = by_line(egress=Egress(number=2), outdated=("l2tp_a",))
    assert LINE_A not in elements["alive"]
    assert not [pair for pair in elements["pairs"] if "l2tp_a" in pair]


def test_line_clients_use_peer_dns_else_the_default_resolver() -> None:
    egress = Egress(number=2, default_resolvers=("192.0.2.54",))
    assert by_line(egress=egress, peers=("10.1.1.1",))["dns4"][LINE_A] == "10.1.1.1"
    assert by_line(egress=egress)["dns4"][LINE_A] == "192.0.2.54"
    own = Egress(number=2, resolvers=("9.9.9.9",), default_resolvers=("192.0.2.54",))
    assert by_line(egress=own, peers=("10.1.1.1",))["dns4"][LINE_A] == "9.9.9.9"


def test_the_next_resolver_replaces_a_silent_one() -> None:
    egress = Egress(number=2, default_resolvers=("192.0.2.54",))
    peers = ("10.1.1.1", "10.1.1.2", "10.1.1.3", "10.1.1.4")
    mark = int(LINE_A, 16)
    for lost, asked in ((0, 0), (1, 1), (2, 2), (3, 0)):
        silent = {(mark, server) for server in peers[:lost]}
        elements = by_line(egress=egress, peers=peers, silent=silent)
        assert elements["dns4"][LINE_A] == peers[asked]
        passed_over = {f"{LINE_A} . {server}": peers[asked] for server in peers[:asked]}
        assert elements["substitutes"] == passed_over
        # A resolver that is also a client may ask any resolver, whether or not it is in use.
        assert elements["resolvers"].keys() == {"192.0.2.53", *peers[:3]}
    elsewhere = {(MARK_DIRECT, "10.1.1.1")}
    assert by_line(egress=egress, peers=peers, silent=elsewhere)["dns4"][LINE_A] == "10.1.1.1"


def test_a_directly_asked_resolver_is_reached_by_wans_only() -> None:
    elements = by_line(egress=Egress(number=2, resolvers=("9.9.9.9",), is_asked_directly=True))
    assert elements["asked"] == {LINE_A: DIRECTLY}
    assert elements["dns4"][DIRECTLY] == "9.9.9.9"
    assert [pair for pair in elements["pairs"] if DIRECTLY in pair] == [f'{DIRECTLY} . "wan1"']
    assert f"{DIRECTLY} . {DIRECTLY}" in elements["unmanaged_connmarks"]


def test_no_direct_dns_for_a_line_that_is_down() -> None:
    egress = Egress(number=2, resolvers=("9.9.9.9",), is_asked_directly=True)
    assert by_line(egress=egress, is_wanted=False)["asked"] == {}


def test_a_whitelist_change_touches_the_expected_connmarks_and_no_client() -> None:
    plan = msgspec.structs.replace(PLAN, whitelist=WhitelistPlan(epoch=2))
    text = nft.INET.update(
        nft.elements(PLAN, ONE_LAN, {}, hosts=False), nft.elements(plan, ONE_LAN, {}, hosts=False)
    )
    touched = {line.split()[4] for line in text.splitlines()}
    assert touched == {"wl", "allowed_connmarks", "connmark_of"}
    assert (
        "add element inet egressd connmark_of { 0x20000001 : 0x20020001, 0x30000000 : 0x30020000 }"
        in (text.splitlines())
    )


@pytest.mark.parametrize("has_it", [True, False])
def test_a_configured_source_is_used_while_its_wan_has_it(has_it: bool) -> None:
    fixed = (("wan1", IPv4Address("203.0.113.9")),)
    topology = msgspec.structs.replace(
        ONE_LAN, fixed_sources=fixed, sources=fixed if has_it else ()
    )
    elements = nft.elements(PLAN, topology, {})
    assert elements["snat_sources"] == ({'"wan1"': "203.0.113.9"} if has_it else {})
    assert elements["wan_sources"] == {**elements["own"], "203.0.113.9": ""}
    rule = "oifname @outside ip saddr @wan_sources fib saddr . oif type != local drop"
    assert rule in nft.load(elements)
    without = nft.elements(PLAN, ONE_LAN, {})
    assert rule not in nft.load(without)
    assert nft.needs_load(without, elements)


def test_an_address_that_two_egresses_have_leaves_by_both() -> None:
    """Past fault: the kernel takes it for the first one's, so that the other one's clients were
    blocked where a WAN has a configured source.
    """
    fixed, single, twin = map(IPv4Address, ("203.0.113.9", "203.0.113.2", "10.2.0.2"))
    topology = msgspec.structs.replace(
        ONE_LAN,
        wans=("wan1", "wg0", "wg1"),
        fixed_sources=(("wan1", fixed),),
        outer_addresses=(("wan1", single), ("wg0", twin)),
        twin_addresses=(twin,),
    )
    elements = nft.elements(PLAN, topology, {})
    assert {*elements["own"]} == {str(single), str(twin)}
    assert {*elements["wan_sources"]} == {str(single), str(fixed)}


def test_flows_of_clients_without_a_rule_have_no_epoch() -> None:
    assert nft.elements(PLAN, ONE_LAN, {})["unmanaged_connmarks"] == {
        "0x20000001 . 0x20000001": "",
        "0x30000000 . 0x30000000": "",
    }


def test_listed_traffic_is_handed_to_the_destinations_own_instance() -> None:
    by_node = msgspec.structs.replace(PLAN, whitelist=WhitelistPlan(mark=0x1000_0001))
    assert nft.elements(by_node, ONE_LAN, {})["listed"] == {"0x1c000002": "0x10000001"}
    assert nft.elements(PLAN, ONE_LAN, {})["listed"] == {}


def test_listeners_without_a_password_are_for_the_lan() -> None:
    services = {
        "service:1": service_instance(1080, username="u", password="p"),
        "service:2": service_instance(1081, 2),
    }
    elements = nft.elements(msgspec.structs.replace(PLAN, instances=services), ONE_LAN, {})
    assert elements["services"] == {"1080": "", "1081": ""}
    assert elements["lanonly"] == {"1081": ""}
    assert nft.restrict_to_lan([1081]) == (
        "add element inet egressd lanonly { 1081 }\nadd element inet egressd services { 1081 }\n"
    )


def test_a_group_without_a_choice_has_no_elements() -> None:
    group = Group(mark=0x1800_0001, members=("node:1",), strategy="fallback", url="", interval_s=30)
    instance = node_instance(1)
    plan = Plan(groups={"group:1": group}, instances={"node:1": instance})
    found = nft.elements(plan, Topology(), {})
    assert [found[name] for name in ("members", "elected", "kept", "slots")] == [{}, {}, {}, {}]


def test_flows_keep_members_that_the_kernel_routes() -> None:
    """Inspected connections and questions for local names are among these flows."""
    group = Group(
        mark=0x1800_0001,
        members=("Interface:wan2", "DIRECT", "node:1"),
        strategy="fallback",
        url="",
        interval_s=30,
    )
    plan = Plan(
        groups={"group:1": group},
        instances={"node:1": node_instance(1)},
        egresses={"wan2": Egress(number=2)},
        whitelist=WhitelistPlan(epoch=3, sniffers={0x2000_0002: 0x1400_0002}),
        policy=GlobalPolicy(local_resolvers=("192.168.1.1",)),
    )
    choices = {"group:1": Choice(living=("Interface:wan2", "node:1"), elected="Interface:wan2")}
    found = nft.elements(plan, Topology(), {"node:1": 20_000}, choices=choices)
    marks = (0x2003_0002, 0x1400_0002, 0x1E00_0002, 0x1000_0001)
    assert set(found["members"]) == {f"0x18000001 . {mark:#x}" for mark in marks}
    assert found["elected"] == {"0x18000001": "0x20000002"}


def test_questions_of_a_group_go_on_to_resolvers_asked_directly() -> None:
    """The second question from a port must not be refused, as any flow without its member is."""
    group = Group(
        mark=0x1800_0001,
        members=("Interface:l2tp_1",),
        strategy="sticky",
        url="",
        interval_s=30,
    )
    for is_directly in (True, False):
        egress = Egress(number=2, resolvers=("9.9.9.9",), is_asked_directly=is_directly)
        plan = Plan(
            groups={"group:1": group},
            egresses={"l2tp_1": egress},
            whitelist=WhitelistPlan(epoch=3),
        )
        choices = {"group:1": Choice(living=group.members, slots=group.members * SLOTS)}
        found = nft.elements(plan, Topology(), {}, choices=choices)
        marks = (0x2003_8002, 0x3003_0001) if is_directly else (0x2003_8002,)
        assert set(found["members"]) == {f"0x18000001 . {mark:#x}" for mark in marks}


def test_flows_keep_nodes_that_run() -> None:
    group = Group(
        mark=0x1800_0001, members=("node:1", "node:2"), strategy="fallback", url="", interval_s=30
    )
    nodes = {f"node:{n}": node_instance(n) for n in (1, 2)}
    plan = Plan(groups={"group:1": group}, instances=nodes)
    choices = {"group:1": Choice(living=("node:1", "node:2"), elected="node:1")}
    both = nft.elements(plan, Topology(), {"node:1": 20_000, "node:2": 20_001}, choices=choices)
    assert set(both["members"]) == {"0x18000001 . 0x10000001", "0x18000001 . 0x10000002"}
    lost = nft.elements(plan, Topology(), {"node:1": 20_000}, choices=choices)
    assert set(lost["members"]) == {"0x18000001 . 0x10000001"}
