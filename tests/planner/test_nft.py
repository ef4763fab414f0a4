"""The text that nftables is given: whole tables, and just what a change needs."""

from ipaddress import IPv4Network

from egressd.model.plan import Change, Egress, Floor, Instance, Patch, Plan, WhitelistPlan
from egressd.planner import nft
from egressd.planner.topology import Topology

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
    floor=Floor(resolver="192.0.2.53"),
    whitelist=WhitelistPlan(mark=0x3000_0000, ranges=("192.0.2.0-192.0.2.255",)),
    hosts={"10.77.0.11": 0x1000_0001, "10.77.0.12": 0x3000_0000},
    nets={"10.77.0.64-10.77.0.127": 0x2000_0001, "10.77.0.9-10.77.0.9": 0x4000_0000},
    instances={
        "node:1": Instance(key="node:1", mark=0x1000_0001, udp=False),
        "node:2": Instance(key="node:2", mark=0x1000_0002),
    },
    egresses={"wan1": Egress(number=1, resolver="192.0.2.54")},
)


def wanted() -> nft.Elements:
    return nft.elements(PLAN, ONE_LAN, {"node:1": 20_000})


def test_a_target_without_a_port_lets_nothing_through() -> None:
    assert wanted()["ports"] == {"0x10000001": "20000"}
    assert "0x10000002 . 0x10000002" not in wanted()["same"]


def test_an_egress_that_is_down_is_not_alive() -> None:
    assert wanted()["alive"] == {"0x20000001": "", "0x30000000": ""}
    assert '0x2000f001 . "wan2"' in wanted()["pairs"]


def test_a_stopped_device_has_no_clients() -> None:
    stopped = Plan(floor=Floor(stopped=True, unmanaged=0x3000_0000), hosts=PLAN.hosts)
    elements = nft.elements(stopped, ONE_LAN, {})
    assert elements["hosts"] == elements["nets"] == elements["dflt"] == {}


def test_one_host_is_one_element_out_and_one_in() -> None:
    change = Change(base=0, revision=1, hosts=Patch(put={"10.77.0.11": 0x3000_0000}))
    assert nft.host_update(PLAN.hosts, change) == (
        "delete element inet egressd hosts { 10.77.0.11 }\n"
        "add element inet egressd hosts { 10.77.0.11 : 0x30000000 }\n"
    )


def test_a_new_host_and_one_that_goes() -> None:
    change = Change(
        base=0,
        revision=1,
        hosts=Patch(put={"10.77.0.13": 0x3000_0000}, drop=("10.77.0.12", "10.77.0.99")),
    )
    assert nft.host_update(PLAN.hosts, change) == (
        "delete element inet egressd hosts { 10.77.0.12 }\n"
        "add element inet egressd hosts { 10.77.0.13 : 0x30000000 }\n"
    )


def test_nothing_new_is_no_transaction() -> None:
    assert nft.update(wanted(), wanted()) == ""


def test_sets_change_by_element_and_interval_sets_as_a_whole() -> None:
    after = nft.elements(PLAN, ONE_LAN, {"node:1": 20_001})
    after["nets"] = {"10.77.0.9": "0x40000000"}
    assert nft.update(wanted(), after) == (
        "flush map inet egressd nets\n"
        "add element inet egressd nets { 10.77.0.9 : 0x40000000 }\n"
        "delete element inet egressd ports { 0x10000001 }\n"
        "add element inet egressd ports { 0x10000001 : 20001 }\n"
    )


def test_a_table_is_never_deleted() -> None:
    text = nft.load(wanted())
    assert "delete" not in text
    assert "flush table" not in text


def test_the_only_lan_is_compared_and_several_are_looked_up() -> None:
    one = nft.load(nft.elements(PLAN, ONE_LAN, {}))
    two = nft.load(nft.elements(PLAN, TWO_LANS, {}))
    assert 'iifname "lan0" goto from_lan' in one
    assert "ip saddr 10.77.0.0/24 drop" in one
    assert "iifname @lanif goto from_lan" in two
    assert "ip saddr @lannet drop" in two


def test_another_lan_takes_another_text() -> None:
    one = nft.elements(PLAN, ONE_LAN, {})
    assert nft.needs_load(one, nft.elements(PLAN, TWO_LANS, {}))
    assert not nft.needs_load(one, nft.elements(PLAN, ONE_LAN, {"node:1": 20_000}))


def test_what_the_engine_does_not_take_is_denied() -> None:
    lines = nft.load(wanted()).splitlines()
    engine = [line for line in lines if line.startswith("add rule inet egressd engine ")]
    assert "tproxy" in engine[-2]
    assert engine[-1].endswith("goto deny")
