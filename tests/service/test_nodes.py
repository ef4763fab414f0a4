"""The use cases of nodes."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import msgspec
import pytest

from egressd.model.delays import Delay
from egressd.model.drafts import ImportOutcome, NodeBatch, NodeDraft
from egressd.model.errors import Failed, Invalid, Missing
from egressd.model.faults import fault
from egressd.model.instances import Dialer
from egressd.model.nouns import Settings
from egressd.model.plan import Change
from egressd.model.wording import as_sentence
from egressd.planner.outbounds.engine import LOST_EARLY_DATA
from tests.support.nodes.configs import TUNNEL

if TYPE_CHECKING:
    from tests.support.drafts import Make
    from tests.support.use_cases import Bench


def config(bench: Bench, name: str) -> dict[str, object]:
    node = bench.state.node_named(name)
    assert node is not None
    found: dict[str, object] = json.loads(node.config_json)
    return found


async def test_a_nodes_configuration_is_stored_unchanged(bench: Bench, make: Make) -> None:
    text = '{ "server":"198.51.100.7" ,"port":1080,  "later-field": [1, {"a": null}] }'
    draft = msgspec.structs.replace(make.node("東京", group="asia"), config_json=text)
    node = (await bench.nodes.create(draft)).value
    assert (node.id, node.name, node.group, node.config_json) == (1, "東京", "asia", text)
    assert bench.nodes.list() == [node]
    await bench.agree()


async def test_every_fault_is_reported_at_once(bench: Bench, make: Make) -> None:
    draft = make.node("a,b", group=" x", port=0, username="u\u0007")
    with pytest.raises(Invalid) as refused:
        await bench.nodes.create(draft)
    text = str(refused.value)
    assert all(part in text for part in ("name must not", "group must not", "config_json"))


@pytest.mark.parametrize(
    "name", ["", "x" * 65, "DIRECT", "REJECT", "Group_a", "Interface:a", "a\n"]
)
async def test_ambiguous_names_are_refused(bench: Bench, make: Make, name: str) -> None:
    with pytest.raises(Invalid, match=r"^name must"):
        await bench.nodes.create(make.node(name))


async def test_names_are_unique(bench: Bench, make: Make) -> None:
    first = await bench.add_node("tokyo")
    other = await bench.add_node("osaka")
    with pytest.raises(Invalid, match="name must not be another's: there is a node tokyo already"):
        await bench.nodes.create(make.node("tokyo"))
    with pytest.raises(Invalid, match="name must not be another's"):
        await bench.nodes.replace(other.id, make.node("tokyo"))
    await bench.nodes.replace(first.id, make.node("tokyo", port=1081))
    await bench.agree()


async def test_a_configuration_that_the_engine_refuses_is_refused(bench: Bench, make: Make) -> None:
    bench.netd.engine_refuses = {"198.51.100.66": "unknown method"}
    with pytest.raises(Invalid, match=r"config_json must be .* the engine takes: unknown method"):
        await bench.nodes.create(make.node("bad", server="198.51.100.66"))
    node = await bench.add_node("good")
    with pytest.raises(Invalid, match="unknown method"):
        await bench.nodes.replace(node.id, make.node("good", server="198.51.100.66"))
    tried = len(bench.netd.tried)
    await bench.nodes.replace(node.id, make.node("better", group="asia"))
    assert len(bench.netd.tried) == tried
    await bench.agree()


async def test_a_new_node_is_tried_with_its_relays(bench: Bench, make: Make) -> None:
    """Its interface has no number yet, and its relay dials through another."""
    await bench.add_node("far", **{"interface-name": "wan7"})
    await bench.add_node("near", **{"dialer-proxy": "far"})
    await bench.add_node("new", **{"dialer-proxy": "near"})
    assert [hop.node for hop in bench.netd.tried[-1].hops] == [3, 2, 1]
    assert len(bench.netd.tried) == 3


async def test_without_netd_a_node_cannot_be_created(bench: Bench, make: Make) -> None:
    bench.netd.is_away = True
    with pytest.raises(Failed, match="not running"):
        await bench.nodes.create(make.node())
    assert bench.nodes.list() == []


async def test_a_rename_updates_every_reference(bench: Bench, make: Make) -> None:
    node = await bench.add_node("tokyo")
    relayed = await bench.add_node("relayed", **{"dialer-proxy": "tokyo"})
    page = {"change_ip_url": "https://seller.test/", "change_ip_via": "tokyo"}
    await bench.nodes.revise(relayed.id, page, ())
    await bench.rules.create(make.rule("10.0.0.1", "tokyo"))
    await bench.rules.create(make.rule("10.0.0.2", "tokyo", is_enabled=False))
    await bench.rules.create(make.rule("10.0.0.3", "DIRECT"))
    await bench.whitelist.put("example.com", "", "tokyo")
    await bench.settings.put(Settings(unmanaged="tokyo"))
    revision = bench.ledger.revision
    outcome = await bench.nodes.replace(node.id, make.node("kyoto"))
    assert outcome.notes == ()
    assert [r.target_node for r in bench.rules.list()] == ["kyoto", "kyoto", "DIRECT"]
    assert config(bench, "relayed")["dialer-proxy"] == "kyoto"
    assert bench.nodes.get(relayed.id).change_ip_via == "kyoto"
    assert bench.whitelist.get().node == "kyoto"
    assert bench.settings.get().unmanaged == "kyoto"
    assert bench.ledger.revision == revision + 1
    await bench.agree()


async def test_an_invalid_new_name_of_a_relay_is_reported_as_the_cause(
    bench: Bench, make: Make
) -> None:
    relay = await bench.add_node("a")
    await bench.add_node("b", **{"dialer-proxy": "a", "later-field": "x" * (65_536 - 110)})
    with pytest.raises(Invalid, match=r"^name must not contain a comma$"):
        await bench.nodes.replace(relay.id, make.node("x,y"))
    with pytest.raises(Invalid, match=r"^name must suit the node b, which .* not be over 65536"):
        await bench.nodes.replace(relay.id, make.node("a" * 64))
    await bench.agree()


async def test_a_rename_does_not_change_the_plan(bench: Bench, make: Make) -> None:
    node = await bench.add_node("tokyo")
    await bench.rules.create(make.rule("10.0.0.1", "tokyo"))
    await bench.nodes.replace(node.id, make.node("kyoto"))
    assert getattr(bench.netd.asked[-1], "is_empty", False)


async def test_a_name_can_be_reused_by_another_node(bench: Bench, make: Make) -> None:
    first = await bench.add_node("a", server="198.51.100.1")
    await bench.rules.create(make.rule("10.0.0.1", "a"))
    await bench.nodes.replace(first.id, make.node("b", server="198.51.100.1"))
    await bench.add_node("a", server="198.51.100.2")
    assert bench.rules.list()[0].target_node == "b"
    await bench.agree()


async def test_a_deletion_reports_the_blocked_rules(bench: Bench, make: Make) -> None:
    node = await bench.add_node("tokyo", group="asia")
    await bench.add_node("relayed", **{"dialer-proxy": "tokyo"})
    await bench.rules.create(make.rule("10.0.0.1", "tokyo"))
    await bench.rules.create(make.rule("10.0.0.2", "tokyo"))
    await bench.rules.create(make.rule("10.0.0.3", "tokyo", is_enabled=False))
    await bench.rules.create(make.rule("10.0.0.4", "Group_asia"))
    await bench.whitelist.put("", "192.0.2.0/24", "tokyo")
    await bench.settings.put(Settings(unmanaged="Group_asia"))
    outcome = await bench.nodes.delete(node.id)
    assert outcome.value == node
    assert outcome.notes == (
        "2 rules are blocked, as there is no node tokyo",
        "the whitelist's destinations are blocked, as there is no node tokyo",
        "1 node does not work, as there is no node tokyo",
        "1 rule is blocked, as there is no group asia",
        "clients without a rule are blocked, as there is no group asia",
    )
    await bench.agree()
    await bench.add_node("tokyo", group="asia")
    await bench.agree()


async def test_a_missing_line_as_egress_is_reported(bench: Bench, make: Make) -> None:
    node = await bench.add_node("a")
    batch = NodeBatch(ids=(node.id,), interface_name="l2tp_1")
    missing = "1 node does not work, as there is no line l2tp_1"
    assert (await bench.nodes.update_many(batch)).notes == (missing,)
    await bench.lines.create(make.line("l2tp_1"))
    assert (await bench.nodes.update_many(batch)).notes == ()
    draft = make.node("b", **{"interface-name": "wan9"})
    assert (await bench.nodes.create(draft)).notes == (), "an interface may come"


async def test_leaving_a_group_reports_the_blocked_rules(bench: Bench, make: Make) -> None:
    first = await bench.add_node("a", group="asia")
    second = await bench.add_node("b", group="asia")
    await bench.rules.create(make.rule("10.0.0.1", "Group_asia"))
    outcome = await bench.nodes.replace(first.id, make.node("a"))
    assert outcome.notes == ()
    batch = NodeBatch(ids=(second.id,), group="")
    assert (await bench.nodes.update_many(batch)).notes == (
        "1 rule is blocked, as there is no group asia",
    )
    await bench.agree()


def tunnel(name: str, **fields: object) -> NodeDraft:
    text = json.dumps({"server": "198.51.100.9", "port": 51820, **TUNNEL, **fields})
    return NodeDraft(name=name, protocol="wireguard", config_json=text, group="wg")


async def test_a_tunnel_has_a_relay_for_udp_and_is_none(bench: Bench, make: Make) -> None:
    await bench.nodes.create(tunnel("tunnel"))
    with pytest.raises(Invalid, match=r"dialer-proxy must not be tunnel: a node of wireguard is"):
        await bench.nodes.create(make.node("a", **{"dialer-proxy": "tunnel"}))
    relay = await bench.add_node("relay", udp=True)
    await bench.nodes.create(tunnel("through", **{"dialer-proxy": "relay"}))
    await bench.add_node("streams")
    with pytest.raises(Invalid, match="must name a node that carries UDP, which wireguard is"):
        await bench.nodes.create(tunnel("through streams", **{"dialer-proxy": "streams"}))
    # Those that dial through a relay block when it becomes a tunnel.
    await bench.nodes.replace(relay.id, tunnel("relay"))
    assert list(bench.state.nodes) == [1, 2, 3, 4]
    await bench.rules.create(make.rule("10.0.0.1", "through"))
    assert "node:3" not in bench.netd.plan.instances
    await bench.agree()


async def test_a_tunnel_serves_clients_with_a_rule_alone(bench: Bench, make: Make) -> None:
    await bench.nodes.create(tunnel("tunnel"))
    with pytest.raises(Invalid, match="unmanaged must not be a node of wireguard"):
        await bench.settings.put(Settings(unmanaged="tunnel"))
    await bench.nodes.create(make.node("plain", group="wg"))
    await bench.settings.put(Settings(unmanaged="Group_wg"))
    await bench.rules.create(make.rule("10.0.0.1", "Group_wg"))
    instances = bench.netd.plan.instances
    assert {"node:1", "node:2", "default:0"} <= instances.keys()
    unruled = instances["default:0"].work
    assert isinstance(unruled, Dialer)
    assert [path.hops[0].node for path in unruled.paths] == [2]
    await bench.agree()


async def test_a_relay_must_exist_and_form_no_loop(bench: Bench, make: Make) -> None:
    with pytest.raises(Invalid, match=r"config_json.dialer-proxy must name a node; .*'none'"):
        await bench.nodes.create(make.node("a", **{"dialer-proxy": "none"}))
    with pytest.raises(Invalid, match="circle: a -> a"):
        await bench.nodes.create(make.node("a", **{"dialer-proxy": "a"}))
    first = await bench.add_node("a")
    await bench.add_node("b", **{"dialer-proxy": "a"})
    await bench.add_node("c", **{"dialer-proxy": "b"})
    with pytest.raises(Invalid, match="circle: a -> c -> b -> a"):
        await bench.nodes.replace(first.id, make.node("a", **{"dialer-proxy": "c"}))
    with pytest.raises(Invalid, match="circle: d -> c -> b -> d"):
        await bench.nodes.replace(first.id, make.node("d", **{"dialer-proxy": "c"}))
    with pytest.raises(Invalid, match="circle: a -> b -> a"):
        await bench.nodes.update_many(NodeBatch(ids=(first.id,), dialer_proxy="b"))
    await bench.agree()


async def test_a_missing_node_is_an_error_except_in_batches(bench: Bench, make: Make) -> None:
    for call in (bench.nodes.replace(9, make.node()), bench.nodes.delete(9)):
        with pytest.raises(Missing, match="no node with the id 9"):
            await call
    assert (await bench.nodes.delete_many([9, 9])).value == 0
    assert (await bench.nodes.update_many(NodeBatch(ids=(9,), group="x"))).value == 0


async def test_several_nodes_are_deleted_at_once(bench: Bench) -> None:
    ids = [(await bench.add_node(name)).id for name in "abc"]
    revision = bench.ledger.revision
    assert (await bench.nodes.delete_many([*ids[:2], ids[0], 99])).value == 2
    assert [node.name for node in bench.nodes.list()] == ["c"]
    assert bench.ledger.revision == revision + 1
    await bench.agree()


async def test_a_batch_changes_only_the_given_fields(bench: Bench) -> None:
    text = {"dns-profile": "custom", "dns-servers": ["192.0.2.1"], "interface-name": "wan1"}
    node = await bench.add_node("a", group="asia", **text)
    assert (await bench.nodes.update_many(NodeBatch(ids=(node.id,)))).value == 1
    assert bench.nodes.list() == [node]
    await bench.nodes.update_many(NodeBatch(ids=(node.id,), group="europe"))
    after = bench.nodes.list()[0]
    assert (after.group, after.config_json) == ("europe", node.config_json)
    await bench.agree()


async def test_an_interface_and_a_relay_replace_each_other(bench: Bench) -> None:
    await bench.add_node("relay")
    node = await bench.add_node("a")
    steps: list[tuple[dict[str, str], dict[str, str]]] = [
        ({"interface_name": "wan2"}, {"interface-name": "wan2"}),
        ({"dialer_proxy": "relay"}, {"dialer-proxy": "relay"}),
        ({"interface_name": "", "dialer_proxy": "relay"}, {"dialer-proxy": "relay"}),
        ({"interface_name": "wan3", "dialer_proxy": ""}, {"interface-name": "wan3"}),
        ({"interface_name": "", "dialer_proxy": ""}, {}),
    ]
    for given, egress in steps:
        batch = NodeBatch(ids=(node.id,), **given)
        assert (await bench.nodes.update_many(batch)).value == 1
        assert config(bench, "a") == {"server": "198.51.100.7", "port": 1080} | egress
        await bench.agree()


async def test_a_batch_sets_and_clears_dns(bench: Bench) -> None:
    node = await bench.add_node("a")
    batch = NodeBatch(
        ids=(node.id,), node_dns_profile="custom", node_dns_servers="192.0.2.1,\n192.0.2.2"
    )
    await bench.nodes.update_many(batch)
    assert config(bench, "a")["dns-servers"] == ["192.0.2.1", "192.0.2.2"]
    batch = NodeBatch(ids=(node.id,), node_dns_profile="", node_dns_servers="")
    await bench.nodes.update_many(batch)
    assert config(bench, "a") == {"server": "198.51.100.7", "port": 1080}


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"interface_name": "wan1", "dialer_proxy": "a"}, "must not both be given"),
        ({"interface_name": "no such name"}, "interface_name must be"),
        ({"dialer_proxy": "nobody"}, "dialer_proxy must name a node"),
        ({"dialer_proxy": "DIRECT"}, "dialer_proxy must not be DIRECT"),
        ({"group": "x" * 65}, "group must have"),
        ({"node_dns_profile": "custom"}, "node_dns_servers must not be empty"),
        ({"node_dns_profile": "custom", "node_dns_servers": " ,\n"}, "node_dns_servers must not"),
        ({"node_dns_profile": "fast"}, "node_dns_profile must be one of"),
        ({"node_dns_servers": "dns.example"}, "node_dns_servers must be"),
    ],
)
async def test_an_invalid_batch_changes_nothing(
    bench: Bench, fields: dict[str, str], problem: str
) -> None:
    node = await bench.add_node("b")
    with pytest.raises(Invalid, match=problem):
        await bench.nodes.update_many(NodeBatch(ids=(node.id,), **fields))
    assert bench.nodes.list() == [node]


async def test_a_batch_cannot_leave_a_custom_profile_without_servers(bench: Bench) -> None:
    settings = {"dns-profile": "custom", "dns-servers": ["192.0.2.1"]}
    node = await bench.add_node("b", **settings)
    with pytest.raises(Invalid, match=r"^node_dns_servers must not be empty: b's node_dns_profile"):
        await bench.nodes.update_many(NodeBatch(ids=(node.id,), node_dns_servers=""))
    assert bench.nodes.list() == [node]
    batch = NodeBatch(ids=(node.id,), node_dns_servers="", node_dns_profile="")
    await bench.nodes.update_many(batch)
    assert config(bench, "b") == {"server": "198.51.100.7", "port": 1080}


async def test_a_batch_names_the_node_whose_configuration_becomes_too_long(bench: Bench) -> None:
    node = await bench.add_node("b", **{"later-field": "x" * (65_536 - 70)})
    with pytest.raises(Invalid, match=r"^the node b does not take these settings: config_json"):
        await bench.nodes.update_many(NodeBatch(ids=(node.id,), interface_name="wan1"))
    assert bench.nodes.list() == [node]


ROWS = """
198.51.100.1,1080,u,p,alpha
198.51.100.2,1080,u,p
198.51.100.3,port,u,p,gamma
198.51.100.4,1080,u,p,alpha
"""


async def import_rows(bench: Bench, text: str = ROWS, **options: object) -> tuple[int, int, int]:
    given = {"replace": False, "group": "asia", "auto_name": False, "start_index": 1} | options
    outcome = await bench.nodes.import_rows("socks5", text, **given)  # type: ignore[arg-type]
    return outcome.imported, outcome.skipped, outcome.error_count


async def test_an_import_takes_valid_rows_only(bench: Bench) -> None:
    assert await import_rows(bench) == (3, 1, 1)
    nodes = {node.name: node.group for node in bench.nodes.list()}
    assert nodes == {"alpha": "asia", "198.51.100.2:1080": "asia", "alpha 2": "asia"}
    assert await import_rows(bench) == (0, 4, 1)
    assert bench.ledger.revision == 1
    await bench.agree()


async def test_an_import_can_number_its_nodes(bench: Bench) -> None:
    await bench.add_node("socks5_4")
    assert await import_rows(bench, auto_name=True, start_index=3) == (3, 1, 1)
    names = [node.name for node in bench.nodes.list()]
    assert names == ["socks5_4", "socks5_3", "socks5_5", "socks5_6"]


async def test_a_replacing_import_leaves_only_its_rows(bench: Bench, make: Make) -> None:
    await import_rows(bench)
    alpha = bench.nodes.list()[0]
    await bench.add_node("omega")
    await bench.rules.create(make.rule("10.0.0.1", "alpha"))
    await bench.rules.create(make.rule("10.0.0.2", "omega"))
    outcome = await bench.nodes.import_rows(
        "socks5",
        "198.51.100.1,1080,u,p,alpha\n198.51.100.9,1080,u,p,beta",
        replace=True,
        group="asia",
        auto_name=False,
        start_index=1,
    )
    assert (outcome.imported, outcome.skipped) == (2, 0)
    assert outcome.notes == ("1 rule is blocked, as there is no node omega",)
    assert bench.nodes.list()[0] == alpha
    assert [node.id for node in bench.nodes.list()] == [1, 5]
    change = bench.netd.asked[-1]
    assert isinstance(change, Change)
    assert f"node:{alpha.id}" not in change.instances.put
    await bench.agree()


async def test_a_replacing_import_without_valid_rows_keeps_the_nodes(bench: Bench) -> None:
    await import_rows(bench)
    assert await import_rows(bench, "<html>", replace=True) == (0, 1, 1)
    assert len(bench.nodes.list()) == 3
    assert await import_rows(bench, "", replace=True) == (0, 0, 0)
    assert bench.nodes.list() == []


async def test_an_import_needs_a_valid_type_and_group(bench: Bench) -> None:
    for kind, group in (("vpn", ""), ("socks5", "a,b")):
        with pytest.raises(Invalid, match=r"^(type|group) must"):
            await bench.nodes.import_rows(
                kind, ROWS, replace=True, group=group, auto_name=False, start_index=1
            )


async def test_delays_are_measured_through_each_node(bench: Bench) -> None:
    relay = await bench.add_node("relay")
    await bench.add_node("relayed", **{"dialer-proxy": "relay"})
    await bench.add_node("slow")
    bench.netd.delay_of = lambda probe: (
        Delay(delay=-1, error=as_sentence("timed out")) if probe.name == "slow" else Delay(delay=30)
    )
    assert await bench.nodes.delay("relay", None, 1000) == Delay(delay=30)
    assert await bench.nodes.delay("slow", None, 1000) == Delay(
        delay=-1, error=as_sentence("timed out")
    )
    url = "http://example.com/"
    assert await bench.nodes.delay_all(url, 1000) == {"relay": 30, "relayed": 30, "slow": -1}
    await bench.nodes.delete(relay.id)
    assert (await bench.nodes.delay("relayed", None, 1000)).error == (
        "there is no node relay, which relayed dials through"
    )
    assert await bench.nodes.delay_all(None, 1000) == {"relayed": -1, "slow": -1}


async def test_a_delay_needs_an_existing_node_and_a_valid_url_and_timeout(bench: Bench) -> None:
    assert await bench.nodes.delay_all(None, 1000) == {}
    with pytest.raises(Missing, match="no node tokyo"):
        await bench.nodes.delay("tokyo", None, 1000)
    for url in ("", "ftp://example.com", "http://", "https://a b", "http://[", "http://a:x/"):
        with pytest.raises(Invalid, match="url must be"):
            await bench.nodes.delay_all(url, 1000)
    for timeout in (0, 60_001):
        with pytest.raises(Invalid, match="timeout must be"):
            await bench.nodes.delay_all(None, timeout)


async def test_every_fault_of_a_batch_is_reported(bench: Bench) -> None:
    node = await bench.add_node("a")
    await bench.nodes.update_many(
        NodeBatch(ids=(node.id,), node_dns_profile="custom", node_dns_servers="192.0.2.1")
    )
    batch = NodeBatch(ids=(node.id,), node_dns_servers="", dialer_proxy="nobody")
    with pytest.raises(Invalid) as refused:
        await bench.nodes.update_many(batch)
    assert refused.value.faults == (
        fault("node_dns_servers", "dns-servers-needed-by-node", name="a"),
        fault("dialer_proxy", "relay-missing", name="nobody"),
    )


EARLY_DATA = {
    "server": "192.0.2.1",
    "port": 443,
    "uuid": "b831381d-6324-4d53-ad4f-8cda48b30811",
    "network": "ws",
    "ws-opts": {"path": "/w?ed=2048"},
}


@pytest.mark.usefixtures("old_engine")
async def test_an_option_without_effect_is_reported_with_the_change(bench: Bench) -> None:
    draft = NodeDraft(name="early", protocol="vmess", config_json=json.dumps(EARLY_DATA), group="")
    made = await bench.nodes.create(draft)
    assert made.notes == (LOST_EARLY_DATA,)
    assert (await bench.nodes.replace(made.value.id, draft)).notes == (LOST_EARLY_DATA,)


LINK = "{0}://{1}@192.0.2.1:443?type=ws&path=%2Fw%3Fed%3D2048#{2}"


async def imported(bench: Bench, rows: list[str], *, preview: bool = False) -> ImportOutcome:
    return await bench.nodes.import_rows(
        "vlessvmess",
        "\n\n".join(rows),
        replace=False,
        group="",
        auto_name=False,
        start_index=1,
        preview=preview,
    )


@pytest.mark.usefixtures("old_engine")
@pytest.mark.parametrize("preview", [True, False])
async def test_an_option_without_effect_is_reported_by_row(bench: Bench, preview: bool) -> None:
    uuid = EARLY_DATA["uuid"]
    rows = [LINK.format(protocol, uuid, protocol) for protocol in ("vless", "vmess")]
    done = await imported(bench, rows, preview=preview)
    assert (done.imported, done.notes) == (2, (f"line 3: {LOST_EARLY_DATA}",))


@pytest.mark.parametrize("preview", [True, False])
async def test_changed_and_omitted_parts_of_an_import_are_reported_by_row(
    bench: Bench, preview: bool
) -> None:
    rows = [
        "trojan://a@192.0.2.1:443?spx=%2F#one",
        "trojan://b@192.0.2.1:443?fp=hellochrome_120&mux=1&tfo=1#one",
        f"trojan://c@192.0.2.1:443#a,{'b' * 70}",
        "trojan://d@192.0.2.1:443#t%E2%80%8Bw%C2%A0o%0A3",
    ]
    done = await imported(bench, rows, preview=preview)
    assert done.imported == 4
    assert done.notes == (
        'line 1: "spx" has no effect here',
        'line 3: "mux" has no effect here; "tfo" has no effect here; "fp" is taken as chrome; '
        "an earlier row has the name: this node is one 2",
        "line 5: a comma in the name became a blank; the name was cut to 64 characters",
        "line 7: what cannot be seen was left out of the name",
    )


async def test_a_preview_reports_rows_that_exist_already(bench: Bench) -> None:
    await bench.add_node("two")
    rows = [f"trojan://p@192.0.2.1:443#{name}" for name in ("one", "t%E2%80%8Bwo")]
    seen = await imported(bench, rows, preview=True)
    assert (seen.imported, seen.skipped, seen.errors) == (1, 1, ())
    assert seen.notes == ("line 3: there is a node two already",)
    done = await imported(bench, rows)
    assert (done.imported, done.skipped, done.notes) == (1, 1, ())


async def test_too_many_different_notes_are_counted(bench: Bench) -> None:
    rows = [f"trojan://p@192.0.2.1:443?x{n}=1#n{n}" for n in range(25)]
    done = await imported(bench, rows)
    assert (done.imported, len(done.notes)) == (25, 21)
    assert done.notes[-1] == "there are notes on 5 more lines"


@pytest.mark.usefixtures("old_engine")
async def test_the_number_of_notes_of_an_import_is_limited(bench: Bench) -> None:
    rows = [LINK.format("vmess", EARLY_DATA["uuid"], number) for number in range(25)]
    done = await imported(bench, rows)
    assert done.imported == 25
    assert len(done.notes) == 21
    assert done.notes[-1] == "the same holds for 5 more lines"
