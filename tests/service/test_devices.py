"""Devices of LANs: what is seen, kept, named, reported and forgotten."""

from __future__ import annotations

import asyncio

import pytest

from egressd.model.devices import DhcpLease, LanDevice
from egressd.model.errors import Failed, Invalid, Missing, Outdated
from egressd.model.messages import DeviceNews, TriedDestination
from egressd.service import device_table
from egressd.service.device_table import FORGOTTEN_AFTER_S, RECENT_S, DeviceTable
from egressd.service.devices import TIMES_S, WRITE_S, DeviceEdit
from tests.service.lan import START, Lan
from tests.support.drafts import rule
from tests.support.use_cases import Bench

ANNA, TV, PRINTER = "02:00:5e:00:53:01", "00:00:5e:00:53:02", "00:11:22:33:44:55"


@pytest.fixture
async def lan(bench: Bench) -> Lan:
    lan = Lan(bench)
    await lan.turn()
    return lan


async def test_a_device_has_what_the_network_shows_of_it(lan: Lan) -> None:
    lan.hears(ANNA, {12: b"anna-phone", 60: b"android-dhcp-13"})
    lan.sees(ANNA, "10.0.0.5")
    lan.sees(TV, "10.0.0.6", age_s=60)
    await lan.turn()
    anna, tv = lan.get(ANNA), lan.get(TV)
    assert (anna.hostname, anna.vendor, anna.is_random_mac) == (
        "anna-phone",
        "android-dhcp-13",
        True,
    )
    assert (tv.hostname, tv.vendor, tv.is_random_mac) == ("", "ICANN, IANA Department", False)
    assert [(a.ip, a.interface) for a in anna.addresses] == [("10.0.0.5", "lan0")]
    assert anna.last_seen == anna.addresses[0].last_seen > tv.last_seen
    assert lan.vendors.asked == [TV], "an address that a device has made up has no maker"
    assert anna.is_online
    lan.at += RECENT_S + 1
    assert not lan.get(ANNA).is_online


async def test_a_request_on_behalf_of_another_device_is_ignored(lan: Lan) -> None:
    lan.sees(ANNA, "10.0.0.5")
    lan.hears(ANNA, {12: b"forged"}, sender=TV)
    await lan.turn()
    assert lan.get(ANNA).hostname == ""
    with pytest.raises(Missing):
        lan.get(TV)


async def test_devices_without_a_rule_come_first(lan: Lan) -> None:
    await lan.bench.rules.create(rule("10.0.0.5", "DIRECT"))
    await lan.bench.rules.create(rule("10.0.8.0/24", "DIRECT"))
    await lan.bench.rules.create(rule("10.0.0.0/16", "DIRECT", is_enabled=False))
    for mac, ip in ((ANNA, "10.0.0.5"), (TV, "10.0.8.6"), (PRINTER, "10.0.0.7")):
        lan.sees(mac, ip)
    assert (await lan.macs())[0] == PRINTER
    assert [(lan.get(mac).rule_id, lan.get(mac).covered_by) for mac in (ANNA, TV, PRINTER)] == [
        (1, ""),
        (None, "10.0.8.0/24"),
        (None, ""),
    ]
    await lan.bench.rules.create(rule("10.0.8.6", "DIRECT"))
    await lan.bench.rules.set_enabled(3, is_enabled=True)
    assert (lan.get(TV).rule_id, lan.get(TV).covered_by) == (4, "")
    assert lan.get(PRINTER).covered_by == "10.0.0.0/16"


async def test_a_rule_is_that_of_the_device_which_has_the_address_now(lan: Lan) -> None:
    await lan.bench.rules.create(rule("10.0.0.5", "DIRECT"))
    lan.sees(ANNA, "10.0.0.5")
    assert lan.get(ANNA).rule_id == 1
    await lan.turn()
    lan.sees(TV, "10.0.0.5")
    assert (lan.get(ANNA).rule_id, lan.get(TV).rule_id) == (None, 1)


async def test_a_device_without_a_rule_shows_what_it_tried(lan: Lan) -> None:
    lan.sees(ANNA, "10.0.0.5")
    lan.sees(TV, "10.0.0.6")
    refused = [
        TriedDestination("10.0.0.5", "tcp", "203.0.113.9", 443, 3),
        TriedDestination("10.0.0.5", "udp", "203.0.113.9", 443, 7),
        *(TriedDestination("10.0.0.6", "tcp", "203.0.113.9", port, 1) for port in range(50)),
    ]
    lan.devices.take(DeviceNews(tried=tuple(refused)))
    found = [(each.protocol, each.ip, each.port, each.packets) for each in lan.get(ANNA).tried]
    assert found == [("udp", "203.0.113.9", 443, 7), ("tcp", "203.0.113.9", 443, 3)]
    assert len(lan.get(TV).tried) == 8
    lan.sees(ANNA, "10.0.0.5")
    assert len(lan.get(ANNA).tried) == 2, "other news do not end it"
    await lan.bench.rules.create(rule("10.0.0.5", "DIRECT"))
    assert lan.get(ANNA).tried == ()
    lan.devices.take(DeviceNews(tried=()))
    assert lan.get(TV).tried == ()


async def test_new_devices_and_moves_are_events(lan: Lan) -> None:
    lan.hears(ANNA, {12: b"anna-phone"})
    lan.sees(ANNA, "10.0.0.5")
    await lan.turn()
    (notice,) = lan.notices
    assert notice.event.text == f"new device anna-phone ({ANNA}) at 10.0.0.5"
    assert (notice.event.topic, notice.event.subject) == ("device", ANNA)
    assert lan.events() == [("new", ANNA)]
    await lan.turn(60.0)
    lan.sees(ANNA, "10.0.0.5")
    await lan.turn()
    assert lan.events() == []
    lan.sees(ANNA, "10.0.0.9")
    await lan.turn()
    (notice,) = lan.notices
    assert notice.event.values["before"] == "10.0.0.5"
    assert lan.events() == [("moved", ANNA)]
    # The kernel still has the address before, and it grows old there.
    lan.sees(ANNA, "10.0.0.5", age_s=65)
    lan.sees(ANNA, "10.0.0.9")
    await lan.turn()
    assert lan.events() == []
    assert lan.get(ANNA).addresses[0].ip == "10.0.0.9"


async def test_a_device_with_several_addresses_does_not_move_between_them(lan: Lan) -> None:
    for minute in range(4):
        for last in range(5, 8):
            lan.sees(ANNA, f"10.0.0.{last}", age_s=last)
        await lan.turn(60.0)
        assert lan.events() == ([("new", ANNA)] if minute == 0 else [])


async def test_many_new_devices_are_one_event(lan: Lan) -> None:
    for n in range(100):
        lan.sees(f"02:00:5e:00:54:{n:02x}", f"10.0.1.{n}")
    await lan.turn()
    (notice,) = lan.notices
    assert notice.event.values["number"] == 100
    assert len(notice.event.values["subjects"]) == 20
    assert notice.event.text.startswith("100 new devices: ")


async def test_leases_name_devices_that_were_not_seen(lan: Lan) -> None:
    lan.leases.leases = [DhcpLease(mac=TV, ip="10.0.0.6", hostname="tv")]
    await lan.turn(60.0)
    tv = lan.get(TV)
    assert (tv.hostname, tv.is_online) == ("tv", False)
    assert [(a.ip, a.interface, a.last_seen) for a in tv.addresses] == [("10.0.0.6", "", "")]
    lan.sees(TV, "10.0.0.7")
    await lan.turn(60.0)
    assert [address.ip for address in lan.get(TV).addresses] == ["10.0.0.7", "10.0.0.6"]
    assert [code for code, _ in lan.events()] == ["new"], "a lease alone was no address in use"


async def test_names_and_comments_are_stored_before_the_answer(lan: Lan) -> None:
    lan.sees(ANNA, "10.0.0.5")
    await lan.devices.edit(ANNA, DeviceEdit("Anna", None))
    assert lan.record.stored[ANNA].name == "Anna"
    await lan.devices.edit(ANNA, DeviceEdit(None, "her old phone"))
    assert (lan.get(ANNA).name, lan.get(ANNA).comment) == ("Anna", "her old phone")
    lan.record.is_full = True
    with pytest.raises(Failed, match="disk full"):
        await lan.devices.edit(ANNA, DeviceEdit("Bert", None))
    assert lan.get(ANNA).name == "Anna"
    assert [str(each) for each in lan.devices.problems()] == [
        "what is seen of devices is not stored: use the file of devices: disk full"
    ]
    lan.record.is_full = False
    await lan.devices.edit(ANNA, DeviceEdit("", None))
    assert (lan.get(ANNA).name, [*lan.devices.problems()]) == ("", [])


@pytest.mark.parametrize(
    ("name", "comment"), [("x" * 65, None), ("a\nb", None), (None, "a\x1b"), (None, None)]
)
async def test_unfit_names_are_refused(lan: Lan, name: str | None, comment: str | None) -> None:
    lan.sees(ANNA, "10.0.0.5")
    with pytest.raises(Invalid):
        await lan.devices.edit(ANNA, DeviceEdit(name, comment))


async def test_a_change_of_another_version_is_refused(lan: Lan) -> None:
    lan.sees(ANNA, "10.0.0.5")
    tag = lan.devices.tag(ANNA)
    lan.sees(ANNA, "10.0.0.6")
    assert lan.devices.tag(ANNA) == tag, "what the network shows is no operator's change"
    await lan.devices.edit(ANNA, DeviceEdit("Anna", None), [tag])
    with pytest.raises(Outdated):
        await lan.devices.edit(ANNA, DeviceEdit("Bert", None), [tag])
    with pytest.raises(Outdated):
        await lan.devices.forget(ANNA, [tag])
    assert lan.get(ANNA).name == "Anna"
    await lan.devices.forget(ANNA, ['"other"', lan.devices.tag(ANNA)])
    with pytest.raises(Missing):
        await lan.devices.edit(ANNA, DeviceEdit("Anna", None))


async def test_of_two_changes_of_one_version_one_is_refused(lan: Lan) -> None:
    lan.sees(ANNA, "10.0.0.5")
    tag = lan.devices.tag(ANNA)
    both = (lan.devices.edit(ANNA, DeviceEdit(name, None), [tag]) for name in ("Anna", "Bert"))
    results = await asyncio.gather(*both, return_exceptions=True)
    assert [type(each) for each in results] == [type(None), Outdated]


async def test_a_forgotten_device_is_new_when_it_is_seen_again(lan: Lan) -> None:
    lan.sees(ANNA, "10.0.0.5")
    await lan.turn()
    await lan.devices.forget(ANNA)
    assert ANNA not in lan.record.stored
    lan.notices.clear()
    lan.sees(ANNA, "10.0.0.5")
    await lan.turn()
    assert lan.events() == [("new", ANNA)]
    assert ANNA in lan.record.stored


async def test_devices_outlive_a_restart(lan: Lan) -> None:
    lan.sees(ANNA, "10.0.0.5")
    await lan.turn()
    await lan.devices.edit(ANNA, DeviceEdit("Anna", None))
    before = lan.get(ANNA)
    await lan.devices.close()
    lan.notices.clear()
    lan.again()
    lan.sees(TV, "10.0.0.6")  # before the stored ones are read
    await lan.turn()
    assert lan.get(ANNA) == before
    assert lan.events() == [("new", TV)]


async def test_times_alone_are_stored_seldom(lan: Lan) -> None:
    lan.sees(ANNA, "10.0.0.5")
    await lan.turn()
    lan.record.writes.clear()
    for _ in range(int(WRITE_S / 60) + 2):
        lan.sees(ANNA, "10.0.0.5")
        await lan.turn(60.0)
    assert lan.record.writes == []
    lan.sees(ANNA, "10.0.0.6")
    await lan.turn(WRITE_S)
    assert lan.record.writes == [({ANNA}, set())]
    lan.sees(ANNA, "10.0.0.6")
    await lan.turn(TIMES_S)
    assert lan.record.stored[ANNA].last_seen == int(lan.at - TIMES_S)


async def test_a_disk_that_fails_loses_nothing(lan: Lan) -> None:
    lan.record.is_full = True
    lan.sees(ANNA, "10.0.0.5")
    with pytest.raises(Failed):
        await lan.turn()
    assert lan.events() == [("new", ANNA)]
    lan.record.is_full = False
    await lan.turn(WRITE_S)
    assert ANNA in lan.record.stored


async def test_devices_that_are_away_are_forgotten_but_an_operators_are_not(lan: Lan) -> None:
    await lan.bench.rules.create(rule("10.0.0.5", "DIRECT"))
    named, ruled, other = "02:00:00:00:00:01", "02:00:00:00:00:02", "02:00:00:00:00:03"
    for mac, ip in ((named, "10.0.0.4"), (ruled, "10.0.0.5"), (other, "10.0.0.6")):
        lan.sees(mac, ip)
    await lan.turn()
    await lan.devices.edit(named, DeviceEdit("spare", None))
    await lan.turn(FORGOTTEN_AFTER_S - TIMES_S)
    assert {*await lan.macs()} == {named, ruled, other}
    await lan.turn(2 * TIMES_S)
    assert {*await lan.macs()} == lan.record.stored.keys() == {named, ruled}


def test_a_flood_takes_the_places_of_those_that_are_away_longest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(device_table, "_ROOM", 10)
    ruled = "02:00:00:00:00:02"
    table = DeviceTable(lambda device: device.mac == ruled, devices_max=100)
    table.take([LanDevice(mac=ANNA, name="Anna", first_seen=1, last_seen=1)])
    table.see(ruled, "10.9.0.1", "lan0", 2)
    for n in range(5000):
        table.see(TV, "10.9.0.2", "lan0", 10 + n)
        mac = f"02:11:00:00:{n >> 8:02x}:{n & 255:02x}"
        table.see(mac, f"10.8.{n >> 8}.{n & 255}", "lan0", 10 + n)
        assert len(table.by_mac) <= 100
    assert {ANNA, ruled, TV, mac} <= table.by_mac.keys()
    assert len(table.holders) <= 101
    assert len(table.fresh) <= 100


def test_a_table_that_is_full_of_an_operators_devices_takes_no_more() -> None:
    table = DeviceTable(lambda _: True, devices_max=2)
    for n in range(5):
        table.see(f"02:00:00:00:00:0{n}", f"10.0.0.{n}", "lan0", n)
    assert [*table.by_mac] == ["02:00:00:00:00:00", "02:00:00:00:00:01"]


def test_a_device_that_takes_many_addresses_keeps_the_last_ones() -> None:
    table = DeviceTable(lambda _: False)
    for n in range(1000):
        table.see(ANNA, f"10.0.{n >> 8}.{n & 255}", "lan0", n)
    addresses = [address.ip for address in table.by_mac[ANNA].addresses]
    assert addresses == [f"10.0.3.{n}" for n in range(231, 223, -1)]
    assert table.holders.keys() == {*addresses}


def test_a_clock_that_is_set_back_makes_no_device_old() -> None:
    table = DeviceTable(lambda _: False)
    table.see(ANNA, "10.0.0.5", "lan0", START + 10 * 86_400)
    table.see(ANNA, "10.0.0.5", "lan0", START)
    assert table.by_mac[ANNA].last_seen == table.by_mac[ANNA].addresses[0].last_seen == START
