"""The whitelist in engine documents, and the instances that it makes."""

from __future__ import annotations

import json
from typing import Any

import pytest

from egressd.model.desired import DesiredState, Edit
from egressd.model.device import Resolvers
from egressd.model.nouns import Node, Rule, Settings, Whitelist
from egressd.model.plan import Plan
from egressd.planner.compile import compile_plan
from egressd.planner.documents import document_of
from egressd.planner.whitelist_entries import has_entries, listing_of, references_of

RESOLVERS = Resolvers(
    device=("192.0.2.53",), domestic=("192.0.2.54",), outbound=("192.0.2.55",), home=("192.0.2.56",)
)
LISTED, DIRECT = 0x1C00_0002, 0x3000_0000


def plan(
    *targets: str,
    domains: str = "example.com",
    node: str = "DIRECT",
    extra: str = "",
    **settings: Any,
) -> Plan:
    """Return a plan with rules to the targets, nodes ``a`` and ``b``, and a whitelist."""
    config = json.dumps(
        {"server": "192.0.2.1", "port": 1080} | ({"username": extra} if extra else {})
    )
    nodes = {
        key: Node(id=key, name=name, protocol="socks5", config_json=text, group="g", created_at="")
        for key, name, text in ((1, "a", '{"server": "192.0.2.2", "port": 1}'), (2, "b", config))
    }
    edits = [Edit("nodes", key, row) for key, row in nodes.items()]
    edits += [Edit("numbers", "Group_g", 1), Edit("numbers", "Interface:wan1", 1)]
    edits += [
        Edit("rules", key, Rule(id=key, ip=f"10.0.0.{key}/32", target_node=target))
        for key, target in enumerate(targets, start=1)
    ]
    edits.append(Edit("whitelist", 0, Whitelist(domains=domains, node=node)))
    edits.append(Edit("settings", 0, Settings(**settings)))
    return compile_plan(DesiredState().with_edits(edits, 1), RESOLVERS)


def documents(made: Plan) -> dict[str, Any]:
    return {key: json.loads(document_of(instance.work)) for key, instance in made.instances.items()}


def test_only_ports_of_entries_are_sniffed() -> None:
    assert listing_of(Whitelist(domains="a.test")).tcp_ports == (80, 443, 8080, 8443)
    assert listing_of(Whitelist(domains="a.test")).udp_ports == (443, 8443)
    bound = listing_of(Whitelist(domains="http://a.test:81, https://a.test:82, quic://a.test:83"))
    assert (bound.tcp_ports, bound.udp_ports) == ((81, 82), (83,))
    assert listing_of(Whitelist(ips="192.0.2.1")).sets == ()


def test_entries_with_equal_conditions_share_a_file() -> None:
    made = listing_of(Whitelist(domains="a.test, b.test, https://c.test:444, https://d.test:444"))
    assert len(made.rule_sets) == 2
    references = [*references_of(made.sets)]
    assert [entry["tag"] for entry in references] == ["listed", "https:444"]
    assert all(entry["path"].rpartition("/")[2] in made.rule_sets for entry in references)


def test_kernel_routed_targets_except_the_destination_have_sniffers() -> None:
    made = plan("DIRECT", "REJECT", "Interface:wan1", "a", node="DIRECT")
    assert set(made.whitelist.sniffers) == {0x2000_0001, 0x4000_0000}
    assert {key for key in made.instances if key.startswith("sniff:")} == {
        "sniff:1",
        f"sniff:{0x0300_0000}",
    }
    assert "rule_set" in documents(made)["node:1"]["route"]


@pytest.mark.parametrize(("node", "mark"), [("DIRECT", DIRECT), ("b", LISTED), ("Group_g", LISTED)])
def test_listed_traffic_leaves_an_instance_with_one_mark(node: str, mark: int) -> None:
    listed = documents(plan("a", node=node))["node:1"]["outbounds"][-1]
    assert (listed["tag"], listed["routing_mark"]) == ("listed", mark)


def test_traffic_that_a_group_sends_back_is_not_sniffed_again() -> None:
    """A group may choose the node whose own instance found the traffic to be listed."""
    rules = documents(plan("a", node="Group_g"))["node:1"]["route"]["rules"]
    final = [rule for rule in rules if rule.get("action") not in ("route-options", "hijack-dns")]
    assert final[1] == {"source_ip_cidr": ["127.0.0.1"], "outbound": "node:1"}


def test_settings_of_the_destination_are_in_no_other_document() -> None:
    before, after = plan("a", node="b"), plan("a", node="b", extra="another")
    assert before.instances["node:1"] == after.instances["node:1"]
    assert before.instances["node:2"] != after.instances["node:2"]
    assert "rule_set" not in documents(before)["node:2"]["route"]


@pytest.mark.parametrize("unmanaged", ["a", "DIRECT", "Interface:wan1"])
def test_clients_without_a_rule_are_not_sniffed_for(unmanaged: str) -> None:
    made = plan("REJECT", unmanaged=unmanaged, node="b")
    assert set(made.whitelist.sniffers) == {0x4000_0000}
    if unmanaged == "a":
        assert "rule_set" not in documents(made)["default:0"]["route"]
        assert made.policy.unmanaged == made.instances["default:0"].mark == 0x1C00_0001
    assert "node:1" not in made.instances


def test_without_entries_nothing_is_sniffed() -> None:
    made = plan("DIRECT", "a", sniff_domains=False, node="b")
    assert not made.whitelist.sniffers
    assert not made.whitelist.rule_sets
    assert made.whitelist.tcp_ports == made.whitelist.udp_ports == ()
    assert "rule_set" not in documents(made)["node:1"]["route"]


def test_separators_alone_are_no_entries() -> None:
    assert not has_entries(Whitelist(domains=" ,\n,", ips=","))
    assert has_entries(Whitelist(domains=",", ips="192.0.2.1,"))
