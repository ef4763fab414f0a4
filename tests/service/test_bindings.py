"""Rules that belong to devices: bound, followed to other addresses, and kept from others."""

from __future__ import annotations

import pytest

from egressd.model.drafts import RuleBatch
from egressd.model.errors import Failed, Invalid, Obstructed
from egressd.model.messages import DeviceNews, Impostor
from egressd.model.nouns import Rule
from egressd.service.bindings import IN_USE_S
from egressd.service.devices import DeviceEdit
from tests.service.lan import Lan
from tests.support.drafts import rule
from tests.support.use_cases import Bench

ANNA, BERT = "02:00:5e:00:53:01", "02:00:5e:00:53:02"
BIND, UNBIND = DeviceEdit(is_bound=True), DeviceEdit(is_bound=False)


@pytest.fixture
async def lan(bench: Bench) -> Lan:
    """A LAN in which Anna's device, at .5, and Bert's, at .6, have rules."""
    lan = Lan(bench)
    await lan.turn()
    for mac, ip in ((ANNA, "10.0.0.5"), (BERT, "10.0.0.6")):
        await bench.rules.create(rule(ip, "DIRECT", upload_limit_kbps=800))
        lan.sees(mac, ip)
    await lan.turn()
    lan.events()
    return lan


def at(lan: Lan, ip: str) -> Rule | None:
    state = lan.bench.state
    rule_id = state.rule_by_ip.get(f"{ip}/32")
    return None if rule_id is None else state.rules[rule_id]


def owner(lan: Lan, ip: str) -> str | None:
    found = at(lan, ip)
    return None if found is None else found.bound_mac


async def test_a_bound_rule_is_in_the_plan_with_its_device(lan: Lan) -> None:
    await lan.devices.edit(ANNA, BIND)
    assert lan.bench.netd.plan.bindings == {"10.0.0.5": ANNA}
    assert (lan.get(ANNA).is_bound, lan.get(BERT).is_bound) == (True, False)
    revision = lan.bench.state.revision
    await lan.devices.edit(ANNA, BIND)
    assert lan.bench.state.revision == revision
    await lan.devices.edit(ANNA, UNBIND)
    assert lan.bench.netd.plan.bindings == {}
    await lan.bench.agree()


async def test_a_device_that_cannot_be_stored_is_not_bound(lan: Lan) -> None:
    """Past fault: the request failed, and the rule was its device's all the same."""
    lan.record.is_full = True
    with pytest.raises(Failed, match="disk full"):
        await lan.devices.edit(ANNA, DeviceEdit(name="Anna's", is_bound=True))
    assert (owner(lan, "10.0.0.5"), lan.get(ANNA).name) == ("", "")


async def test_a_device_that_cannot_be_bound_keeps_its_name(lan: Lan) -> None:
    await lan.bench.rules.delete(lan.bench.state.rule_by_ip["10.0.0.5/32"])
    with pytest.raises(Invalid, match="is_bound"):
        await lan.devices.edit(ANNA, DeviceEdit(name="Anna's", is_bound=True))
    assert (lan.get(ANNA).name, lan.record.stored[ANNA].name) == ("", "")


async def test_no_undo_gives_a_device_a_second_rule(lan: Lan) -> None:
    """Past fault: it had two, of which either one followed it."""
    state = lan.bench.state
    await lan.devices.edit(ANNA, BIND)
    await lan.bench.rules.delete(state.rules[state.rule_by_ip["10.0.0.5/32"]].id)
    deletion = lan.bench.state.revision
    await lan.turn(IN_USE_S + 1)
    lan.sees(ANNA, "10.0.0.9")
    await lan.bench.rules.create(rule("10.0.0.9", "REJECT"))
    await lan.devices.edit(ANNA, BIND)
    with pytest.raises(Obstructed, match=f"bound_mac must not be another's: '{ANNA}'"):
        await lan.bench.undo.undo(deletion)
    assert (owner(lan, "10.0.0.5"), owner(lan, "10.0.0.9")) == (None, ANNA)


async def test_a_disabled_rule_binds_nothing(lan: Lan) -> None:
    await lan.devices.edit(ANNA, BIND)
    await lan.bench.rules.set_enabled_many(["10.0.0.5"], False)
    assert lan.bench.netd.plan.bindings == {}
    await lan.bench.rules.set_enabled_many(["10.0.0.5"], True)
    assert lan.bench.netd.plan.bindings == {"10.0.0.5": ANNA}


async def test_a_rule_follows_its_device_with_its_id_and_limits(lan: Lan) -> None:
    await lan.devices.edit(ANNA, BIND)
    before = at(lan, "10.0.0.5")
    assert before is not None
    lan.sees(ANNA, "10.0.0.9")
    await lan.turn()
    after = at(lan, "10.0.0.9")
    assert after is not None
    assert (after.id, after.upload_limit_kbps, after.bound_mac) == (before.id, 800, ANNA)
    assert at(lan, "10.0.0.5") is None
    assert lan.bench.netd.plan.bindings == {"10.0.0.9": ANNA}
    assert [str(record.text) for record, _ in lan.noted] == [
        f"the rule of {ANNA} has followed it from 10.0.0.5 to 10.0.0.9"
    ]
    await lan.bench.agree()


async def test_a_rule_follows_a_device_that_is_not_reported_yet(lan: Lan) -> None:
    clara = "02:00:5e:00:53:03"
    await lan.bench.rules.create(rule("10.0.0.7", "DIRECT"))
    lan.sees(clara, "10.0.0.7")
    await lan.devices.edit(clara, BIND)
    lan.at += 1
    lan.sees(clara, "10.0.0.9")
    await lan.turn()
    assert owner(lan, "10.0.0.9") == clara
    assert lan.events() == [("new", clara)]


async def test_a_rule_follows_its_device_back_once_it_is_there(lan: Lan) -> None:
    await lan.devices.edit(ANNA, BIND)
    lan.sees(ANNA, "10.0.0.9")
    await lan.turn()
    lan.sees(ANNA, "10.0.0.5")
    await lan.turn()
    assert owner(lan, "10.0.0.9") == ANNA  # it may use both
    await lan.turn(IN_USE_S)
    lan.sees(ANNA, "10.0.0.5")
    await lan.turn()
    assert (owner(lan, "10.0.0.5"), owner(lan, "10.0.0.9")) == (ANNA, None)


async def test_unbound_rules_stay_where_they_are(lan: Lan) -> None:
    lan.sees(ANNA, "10.0.0.9")
    await lan.turn()
    assert (owner(lan, "10.0.0.5"), owner(lan, "10.0.0.9")) == ("", None)


async def test_two_devices_exchange_addresses_with_their_rules(lan: Lan) -> None:
    for mac in (ANNA, BERT):
        await lan.devices.edit(mac, BIND)
    lan.sees(ANNA, "10.0.0.6")
    await lan.turn()
    assert (owner(lan, "10.0.0.6"), owner(lan, "10.0.0.5")) == (ANNA, BERT)
    lan.sees(BERT, "10.0.0.5")
    await lan.turn()
    assert (owner(lan, "10.0.0.6"), owner(lan, "10.0.0.5")) == (ANNA, BERT)
    await lan.bench.agree()


async def test_a_rule_stays_if_the_address_has_one_of_its_own(lan: Lan) -> None:
    await lan.devices.edit(ANNA, BIND)
    lan.sees(ANNA, "10.0.0.6")
    for _ in range(2):
        await lan.turn()
    assert (owner(lan, "10.0.0.5"), owner(lan, "10.0.0.6")) == (ANNA, "")
    assert [code for code, _ in lan.events()].count("unfollowed") == 1
    await lan.bench.rules.delete_many(["10.0.0.6"])
    await lan.turn()
    assert owner(lan, "10.0.0.6") == ANNA


async def test_the_standby_box_of_a_pair_moves_no_rule(lan: Lan) -> None:
    """After a takeover it moves one only for what it saw since the last change of the rule."""
    await lan.devices.edit(ANNA, BIND)
    lan.is_standby = True
    lan.sees(ANNA, "10.0.0.9")
    await lan.turn()
    assert owner(lan, "10.0.0.5") == ANNA
    bound = at(lan, "10.0.0.5")
    assert bound is not None
    await lan.turn(IN_USE_S)
    await lan.bench.rules.update_many(
        RuleBatch(ips=("10.0.0.5",), upload_limit_kbps=64)
    )  # the other box has moved it
    lan.is_standby = False
    await lan.turn()
    assert owner(lan, "10.0.0.5") == ANNA
    await lan.turn()
    lan.sees(ANNA, "10.0.0.9")
    await lan.turn()
    assert owner(lan, "10.0.0.9") == ANNA


async def test_a_device_without_a_rule_or_with_several_addresses_is_refused(lan: Lan) -> None:
    lan.sees("02:00:5e:00:53:03", "10.0.0.7")
    with pytest.raises(Invalid, match="has no rule of its own"):
        await lan.devices.edit("02:00:5e:00:53:03", BIND)
    lan.sees(BERT, "10.0.0.8")
    with pytest.raises(Invalid, match="several addresses are in use behind"):
        await lan.devices.edit(BERT, BIND)
    assert lan.bench.netd.plan.bindings == {}


async def test_an_address_belongs_to_one_device_and_a_device_has_one(lan: Lan) -> None:
    await lan.devices.edit(ANNA, BIND)
    await lan.turn(IN_USE_S + 1)
    lan.sees(BERT, "10.0.0.5")
    with pytest.raises(Invalid, match=f"belongs to the device {ANNA}"):
        await lan.devices.edit(BERT, BIND)
    lan.is_standby = True
    await lan.bench.rules.create(rule("10.0.0.7", "DIRECT"))
    lan.sees(ANNA, "10.0.0.7")
    with pytest.raises(Invalid, match="already"):
        await lan.devices.edit(ANNA, BIND)


async def test_a_device_with_several_addresses_keeps_its_rule_where_it_is(lan: Lan) -> None:
    await lan.devices.edit(ANNA, BIND)
    for ip in ("10.0.0.9", "10.0.0.10"):
        lan.sees(ANNA, ip)
    await lan.turn()
    assert owner(lan, "10.0.0.5") == ANNA


async def test_another_address_by_the_api_takes_the_rule_from_the_device(lan: Lan) -> None:
    await lan.devices.edit(ANNA, BIND)
    found = at(lan, "10.0.0.5")
    assert found is not None
    await lan.bench.rules.replace(found.id, rule("10.0.0.5", "REJECT"))
    assert owner(lan, "10.0.0.5") == ANNA
    await lan.bench.rules.replace(found.id, rule("10.0.0.50", "REJECT"))
    assert owner(lan, "10.0.0.50") == ""


async def test_a_change_that_fails_is_tried_again(lan: Lan) -> None:
    await lan.devices.edit(ANNA, BIND)
    lan.bench.netd.behaviour = ["refuse"]
    lan.sees(ANNA, "10.0.0.9")
    await lan.turn()
    assert owner(lan, "10.0.0.5") == ANNA
    await lan.turn()
    assert owner(lan, "10.0.0.9") == ANNA


async def test_an_impostor_is_reported_once_an_hour(lan: Lan) -> None:
    await lan.devices.edit(ANNA, BIND)
    seen = DeviceNews(impostors=(Impostor("10.0.0.5", BERT, 7),))
    for news in (seen, seen, DeviceNews(), DeviceNews(impostors=()), seen):
        lan.devices.take(news)
    assert lan.events() == [("impostor", BERT)] * 2
    lan.devices.take(DeviceNews(impostors=(Impostor("10.0.0.6", ANNA, 7),)))
    assert lan.events() == []  # it belongs to none any more
