"""The configurations of keepalived and conntrackd, and lines of keepalived's pipe. Golden files
have the whole texts.
"""

from __future__ import annotations

from dataclasses import replace
from ipaddress import IPv4Address

import pytest

from egressd.netd.cluster import flows, vrrp
from tests.support.pairs import FOLDER, OWN, PAIR


@pytest.mark.parametrize(("ms", "seconds"), [(300, "0.3"), (1000, "1"), (150, "0.15")])
def test_adverts_have_the_interval_of_the_configuration(ms: int, seconds: str) -> None:
    text = vrrp.configuration(replace(PAIR, advert_ms=ms), FOLDER)
    assert f"  advert_int {seconds}\n" in text


def test_flows_of_shared_addresses_reach_the_peer_and_own_ones_do_not() -> None:
    text = flows.configuration(PAIR, FOLDER, OWN)
    ignored = {line.split()[1] for line in text.splitlines() if line.startswith(" " * 8 + "IPv4_")}
    shared = {str(address.ip) for address in PAIR.shared.values()}
    assert ignored & shared == set()
    assert {str(address) for address in OWN} - shared <= ignored
    assert {str(IPv4Address("10.77.0.3")), "192.168.77.1", "192.168.77.2"} <= ignored


@pytest.mark.parametrize(
    ("line", "role"),
    [
        ('INSTANCE "egressd" MASTER 100\n', "active"),
        ('INSTANCE "egressd" BACKUP 100\n', "standby"),
        ('INSTANCE "egressd" FAULT 100\n', "fault"),
        ('INSTANCE "egressd" STOP 100\n', "fault"),
        ('INSTANCE "egressd" MASTER_RX_LOWER_PRI 100\n', None),
        ('INSTANCE "another" MASTER 100\n', None),
        ('GROUP "egressd" MASTER 100\n', None),
        ("INSTANCE\n", None),
        ("", None),
    ],
)
def test_a_line_of_the_pipe_is_a_role(line: str, role: str | None) -> None:
    assert vrrp.role_of(line) == role


def test_the_track_file_forbids_by_the_value_that_means_fault() -> None:
    assert vrrp.track(may_be_active=True) == "   0\n"
    assert vrrp.track(may_be_active=False, unaddressed=1) == "-254\n"


def test_a_link_without_an_address_costs_as_much_as_one_that_is_down() -> None:
    assert vrrp.track(may_be_active=True, unaddressed=2) == "  -2\n"
    assert " weight -1\n" in vrrp.configuration(PAIR, FOLDER)


def test_the_shared_addresses_are_known_from_the_file() -> None:
    text = vrrp.configuration(PAIR, FOLDER)
    assert vrrp.addresses_in(text) == PAIR.shared
    assert vrrp.addresses_in("") == {}
