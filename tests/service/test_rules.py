"""The use cases of rules."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from egressd.model.drafts import RuleBatch
from egressd.model.errors import Invalid, Missing
from egressd.model.faults import fault

if TYPE_CHECKING:
    from tests.support.drafts import Make
    from tests.support.use_cases import Bench


def hosts(bench: Bench) -> list[str]:
    return [rule.host for rule in bench.rules.list()]


async def test_a_rule_is_stored_normalised(bench: Bench, make: Make) -> None:
    draft = make.rule("10.0.0.5", mac="aa:bb", comment="tv", upload_limit_kbps=10)
    rule = (await bench.rules.create(draft)).value
    assert (rule.id, rule.ip, rule.host) == (1, "10.0.0.5/32", "10.0.0.5")
    assert (rule.mac, rule.comment, rule.upload_limit_kbps) == ("aa:bb", "tv", 10)
    assert rule.created_at == rule.updated_at == "2026-11-20T22:00:00Z"
    assert bench.rules.list() == [rule]


async def test_replacing_keeps_the_id_and_the_time_of_creation(bench: Bench, make: Make) -> None:
    before = (await bench.rules.create(make.rule())).value
    bench.clock.tick()
    after = (await bench.rules.replace(before.id, make.rule("10.0.0.0/24", "REJECT"))).value
    assert (after.id, after.ip, after.created_at) == (1, "10.0.0.0/24", before.created_at)
    assert after.updated_at == "2026-11-20T22:00:01Z"
    await bench.agree()


@pytest.mark.parametrize(
    "ip",
    [
        "",
        "10.0.0.5/24",
        "10.0.0.256",
        "10.0.0",
        "010.0.0.1",
        "10.0.0.0/255.255.255.0",
        "10.0.0.0/33",
        "10.0.0.0/-1",
        "10.0.0.1/",
        " 10.0.0.1",
        "::1",
        "\u0661\u0660.0.0.1",
        "10.0.0.1\n",
        "any",
    ],
)
async def test_an_invalid_address_is_refused(bench: Bench, make: Make, ip: str) -> None:
    with pytest.raises(Invalid, match=r"^ip must be an IPv4 address or a CIDR"):
        await bench.rules.create(make.rule(ip))
    with pytest.raises(Invalid, match=r"^ips must be"):
        await bench.rules.delete_many([ip])


async def test_every_fault_is_reported_at_once(bench: Bench, make: Make) -> None:
    draft = make.rule(
        "10.0.0.5/8",
        "nowhere",
        mac="m" * 65,
        comment="a\nb",
        upload_limit_kbps=-1,
        download_limit_kbps=10_000_001,
    )
    with pytest.raises(Invalid) as refused:
        await bench.rules.create(draft)
    assert refused.value.faults == (
        fault("ip", "ipv4-or-cidr"),
        fault("mac", "too-long", most=64),
        fault("comment", "control-characters"),
        fault("target_node", "target-missing", kind="node", name="nowhere"),
        fault("upload_limit_kbps", "whole-number", least=0, most=10_000_000),
        fault("download_limit_kbps", "whole-number", least=0, most=10_000_000),
    )


@pytest.mark.parametrize("target", ["", "direct", "Group_", "Group_none", "Interface:", "nobody"])
async def test_a_target_must_exist(bench: Bench, make: Make, target: str) -> None:
    await bench.add_node("tokyo", group="asia")
    with pytest.raises(Invalid, match=r"^target_node must"):
        await bench.rules.create(make.rule(target=target))


@pytest.mark.parametrize("name", ["-x", "a b", "eth*", "l2tp_1234567890a", "a\nb", "wän"])
async def test_the_target_interface_must_have_a_valid_name(
    bench: Bench, make: Make, name: str
) -> None:
    with pytest.raises(Invalid, match=r"^target_node must be an interface name"):
        await bench.rules.create(make.rule(target=f"Interface:{name}"))


async def test_every_form_of_target_is_accepted(bench: Bench, make: Make) -> None:
    await bench.add_node("tokyo", group="asia")
    targets = ["DIRECT", "REJECT", "tokyo", "Group_asia", "Interface:wan9", "Interface:l2tp_9"]
    for number, target in enumerate(targets, 1):
        await bench.rules.create(make.rule(f"10.0.0.{number}", target))
    assert [rule.target_node for rule in bench.rules.list()] == targets
    await bench.agree()


async def test_addresses_are_unique_in_either_spelling(bench: Bench, make: Make) -> None:
    await bench.rules.create(make.rule("10.0.0.5"))
    other = (await bench.rules.create(make.rule("10.0.0.6"))).value
    for spelling in ("10.0.0.5", "10.0.0.5/32"):
        with pytest.raises(Invalid, match="ip must not have a rule already"):
            await bench.rules.create(make.rule(spelling))
        with pytest.raises(Invalid, match="ip must not have a rule already"):
            await bench.rules.replace(other.id, make.rule(spelling))
    await bench.rules.replace(other.id, make.rule("10.0.0.6/32", comment="itself"))
    await bench.rules.create(make.rule("10.0.0.4/31"))
    await bench.agree()


async def test_a_missing_rule_is_an_error(bench: Bench, make: Make) -> None:
    for call in (
        bench.rules.replace(9, make.rule()),
        bench.rules.set_enabled(9, True),
        bench.rules.delete(9),
    ):
        with pytest.raises(Missing, match="no rule with the id 9"):
            await call


async def test_the_id_of_a_deleted_rule_is_not_reused(bench: Bench, make: Make) -> None:
    first = (await bench.rules.create(make.rule())).value
    assert (await bench.rules.delete(first.id)).value == first
    assert bench.netd.plan.hosts == {}
    assert (await bench.rules.create(make.rule())).value.id == 2
    await bench.agree()


async def test_a_disabled_rule_has_no_effect(bench: Bench, make: Make) -> None:
    rule = (await bench.rules.create(make.rule(download_limit_kbps=5))).value
    off = (await bench.rules.set_enabled(rule.id, False)).value
    assert not off.is_enabled
    assert (bench.netd.plan.hosts, bench.netd.plan.limits) == ({}, {})
    await bench.rules.set_enabled(rule.id, True)
    assert bench.netd.plan.limits["10.0.0.5"].download_kbps == 5
    await bench.agree()


async def test_batches_count_existing_rules_in_either_spelling(bench: Bench, make: Make) -> None:
    for number in range(1, 5):
        await bench.rules.create(make.rule(f"10.0.0.{number}"))
    ips = ["10.0.0.1/32", "10.0.0.1", "10.0.0.2", "10.9.9.9"]
    assert (await bench.rules.set_enabled_many(ips, False)).value == 2
    assert [rule.is_enabled for rule in bench.rules.list()] == [False, False, True, True]
    assert (await bench.rules.delete_many(ips)).value == 2
    assert hosts(bench) == ["10.0.0.3", "10.0.0.4"]
    assert (await bench.rules.delete_many([])).value == 0
    await bench.agree()


async def test_a_batch_changes_only_the_given_fields(bench: Bench, make: Make) -> None:
    await bench.add_node("tokyo")
    for number in (1, 2):
        await bench.rules.create(make.rule(f"10.0.0.{number}", upload_limit_kbps=7))
    batch = RuleBatch(ips=("10.0.0.1", "10.0.0.2"), target_node="tokyo", download_limit_kbps=0)
    assert (await bench.rules.update_many(batch)).value == 2
    batch = RuleBatch(ips=("10.0.0.2",), upload_limit_kbps=0, download_limit_kbps=9)
    assert (await bench.rules.update_many(batch)).value == 1
    assert [
        (rule.target_node, rule.upload_limit_kbps, rule.download_limit_kbps)
        for rule in bench.rules.list()
    ] == [("tokyo", 7, 0), ("tokyo", 0, 9)]
    await bench.agree()


async def test_every_fault_of_a_batch_is_reported(bench: Bench) -> None:
    with pytest.raises(Invalid, match="one of update_target, update_upload and update_download"):
        await bench.rules.update_many(RuleBatch(ips=("10.0.0.1",)))
    batch = RuleBatch(ips=(), target_node="", upload_limit_kbps=-1, download_limit_kbps=-1)
    with pytest.raises(Invalid) as refused:
        await bench.rules.update_many(batch)
    assert refused.value.faults == (
        fault("target_node", "target-missing", kind="node", name=""),
        fault("upload_limit_kbps", "whole-number", least=0, most=10_000_000),
        fault("download_limit_kbps", "whole-number", least=0, most=10_000_000),
    )


async def test_a_rule_with_a_deleted_target_is_reported(bench: Bench, make: Make) -> None:
    node = await bench.add_node("tokyo")
    rule = (await bench.rules.create(make.rule(target="tokyo", is_enabled=False))).value
    assert (await bench.nodes.delete(node.id)).notes == ()
    outcome = await bench.rules.set_enabled(rule.id, True)
    assert outcome.notes == ("1 rule is blocked, as there is no node tokyo",)
    await bench.agree()


async def test_a_rule_with_a_node_whose_relay_is_deleted_is_reported(
    bench: Bench, make: Make
) -> None:
    relay = await bench.add_node("relay")
    await bench.add_node("tokyo", **{"dialer-proxy": "relay"})
    await bench.nodes.delete(relay.id)
    outcome = await bench.rules.create(make.rule(target="tokyo"))
    reason = "there is no node relay, which tokyo dials through"
    assert outcome.notes == (f"1 rule is blocked, as {reason}",)
    await bench.agree()


IMPORT = """
# rooms
10.0.0.1,DIRECT,kitchen
10.0.0.2,tokyo

10.0.0.3,nowhere,bad target
10.0.0.300,DIRECT
10.0.0.1/32,REJECT,already there
10.0.0.9
"""


async def test_an_import_takes_valid_rows_only(bench: Bench, make: Make) -> None:
    await bench.add_node("tokyo")
    await bench.rules.create(make.rule("10.0.0.2", comment="mine"))
    outcome = await bench.rules.import_rows(IMPORT.replace("\n", "\r\n"), replace=False)
    assert (outcome.imported, outcome.skipped, outcome.error_count) == (1, 5, 3)
    assert [error.split(":")[0] for error in outcome.errors] == ["line 6", "line 7", "line 9"]
    assert {rule.host: rule.comment for rule in bench.rules.list()} == {
        "10.0.0.1": "kitchen",
        "10.0.0.2": "mine",
    }
    assert bench.ledger.revision == 3
    await bench.agree()


async def test_a_replacing_import_leaves_only_its_rows(bench: Bench, make: Make) -> None:
    await bench.add_node("tokyo")
    kept = (await bench.rules.create(make.rule("10.0.0.1", comment="kitchen"))).value
    await bench.rules.create(make.rule("10.0.0.2", comment="mine", upload_limit_kbps=5))
    await bench.rules.create(make.rule("10.0.0.77"))
    revision = bench.ledger.revision
    bench.clock.tick()
    outcome = await bench.rules.import_rows(IMPORT, replace=True)
    assert (outcome.imported, outcome.skipped) == (2, 4)
    first, second = bench.rules.list()
    assert first == kept
    assert (second.id, second.target_node, second.upload_limit_kbps) == (2, "tokyo", 0)
    assert bench.ledger.revision == revision + 1
    await bench.agree()


async def test_a_replacing_import_without_valid_rows_keeps_the_rules(
    bench: Bench, make: Make
) -> None:
    await bench.rules.create(make.rule())
    outcome = await bench.rules.import_rows("<html>\nnot,found\n", replace=True)
    assert (outcome.imported, outcome.skipped) == (0, 2)
    assert outcome.notes == ("nothing was replaced, since no row could be used",)
    assert hosts(bench) == ["10.0.0.5"]
    outcome = await bench.rules.import_rows("# nothing\n", replace=True)
    assert (outcome.imported, outcome.skipped, outcome.notes) == (0, 0, ())
    assert hosts(bench) == []
    await bench.agree()


async def test_only_the_first_reasons_are_returned(bench: Bench) -> None:
    outcome = await bench.rules.import_rows("x\n" * 50, replace=False)
    assert (outcome.skipped, outcome.error_count, len(outcome.errors)) == (50, 50, 20)
