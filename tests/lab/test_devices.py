"""Devices of LANs, from a real client's first packet to the list, the events and a restart."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

import pytest

from egressd_lab.lab import Lab
from egressd_lab.spec import LabSpec
from tests.lab.five import heard
from tests.support.device import eventually, rule
from tests.support.dhcp import request

pytestmark = pytest.mark.lab

INTERFACE: Final = "eth0"
"""A client's interface."""
SOON_S: Final = 30.0
"""Seconds until a device is in the list: netd reports within 2 s, the api within 5 s."""

TRIED_S: Final = 75.0
"""Seconds until what a client tried is in the list: netd looks each minute."""


@pytest.fixture(scope="module")
def lab(namespaces: None) -> Iterator[Lab]:
    with Lab(LabSpec()) as lab:
        lab.start_egressd()
        yield lab


def mac_of(lab: Lab, number: int) -> str:
    return lab.client(number).host.mac(INTERFACE).hex(":")


def listed(lab: Lab) -> dict[str, dict[str, Any]]:
    found = lab.api.ask("GET", "/ops/devices").body["data"]
    return {each["mac"]: each for each in found}


def tried(lab: Lab, mac: str) -> list[tuple[str, str, int]]:
    found = listed(lab)[mac]["tried"]
    return [(each["protocol"], each["ip"], each["port"]) for each in found]


def test_a_client_is_in_the_list_with_its_rule_and_its_name(lab: Lab) -> None:
    client, mac = lab.client(1), mac_of(lab, 1)
    with heard(lab) as five:
        client.ping("203.0.113.10")  # it is blocked, and its address is resolved nevertheless
        eventually(lambda: mac in listed(lab), SOON_S)
        five.await_news(f"({mac}) at {client.address}", SOON_S)
    assert listed(lab)[mac]["rule_id"] is None
    assert not client.http("http://203.0.113.10/", timeout=1).ok
    eventually(lambda: ("tcp", "203.0.113.10", 80) in tried(lab, mac), TRIED_S)
    rule(lab, client.address, "DIRECT")
    assert tried(lab, mac) == []
    found = listed(lab)[mac]
    assert [each["ip"] for each in found["addresses"]] == [client.address]
    assert isinstance(found["rule_id"], int)
    assert [*listed(lab)][-1] == mac, "a device with a rule comes last"
    packet = request(mac, {12: b"\x1b[2J<i>anna</i>-phone", 60: b"udhcp 1.35"})
    client.host.emit(INTERFACE, packet)
    eventually(lambda: listed(lab)[mac]["hostname"] == "iannai-phone", SOON_S)


def test_a_client_that_takes_another_address_has_moved(lab: Lab) -> None:
    client, mac = lab.client(2), mac_of(lab, 2)
    other = client.address.rpartition(".")[0] + ".211"
    with heard(lab) as five:
        client.ping("203.0.113.10")
        five.await_news(f"({mac}) at {client.address}", SOON_S)
        client.host.run("ip", "address", "del", f"{client.address}/24", "dev", INTERFACE)
        client.host.run("ip", "address", "add", f"{other}/24", "dev", INTERFACE)
        client.host.run("ip", "route", "replace", "default", "via", "10.77.0.1")
        client.host.run("ping", "-c1", "-W1", "10.77.0.1", check=False)
        five.await_news(f"is now at {other}, and was at {client.address} before", SOON_S)
    assert listed(lab)[mac]["addresses"][0]["ip"] == other


def test_names_outlive_a_restart_of_the_service(lab: Lab) -> None:
    mac = mac_of(lab, 1)
    lab.device.run("devices", "name", mac, "Anna's phone")
    lab.device.stop()
    lab.device.start()
    eventually(lambda: listed(lab).get(mac, {}).get("name") == "Anna's phone", SOON_S)
    shown = json.loads(lab.device.run("devices", "show", mac, "--json"))
    assert shown["first_seen"] <= shown["last_seen"]
    assert "forgotten" in lab.device.run("devices", "forget", mac)
    assert mac not in listed(lab)
