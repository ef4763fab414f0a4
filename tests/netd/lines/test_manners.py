"""In which manner IPsec is asked for after attempts that failed."""

from __future__ import annotations

from ipaddress import IPv4Address

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from egressd.netd.lines.failure import IkeStage
from egressd.netd.lines.manners import Manners
from egressd.planner.lines.ipsec import Manner
from egressd.planner.lines.proposals import ESP_OFFERS, IKE_OFFERS
from tests.netd.lines.rig import DIAL

OTHER = msgspec.structs.replace(DIAL, server=IPv4Address("203.0.113.10"))


def in_udp(manners: Manners, attempts: int) -> list[bool]:
    """Return for each attempt, by which no packet comes, True if ESP goes in UDP."""
    found = []
    for _ in range(attempts):
        manner = manners.of(DIAL)
        found.append(manner.is_in_udp)
        manners.unheard(DIAL, manner)
    return found


def test_all_that_there_is_is_offered_in_turn() -> None:
    manners = Manners()
    tried = []
    for _ in IKE_OFFERS:
        tried.append(manners.of(DIAL))
        manners.refused(DIAL, tried[-1], IkeStage.IKE)
    assert [manner.ike for manner in tried] == list(range(len(IKE_OFFERS)))
    assert manners.of(DIAL) == Manner()
    for _ in ESP_OFFERS:
        manners.refused(DIAL, manners.of(DIAL), IkeStage.ESP)
    assert manners.of(DIAL) == Manner()
    assert manners.of(OTHER) == Manner(), "each server has its own"


def test_lines_that_try_the_same_at_once_try_it_once() -> None:
    manners = Manners()
    tried = manners.of(DIAL)
    manners.refused(DIAL, tried, IkeStage.IKE)
    manners.refused(DIAL, tried, IkeStage.IKE)
    assert manners.of(DIAL).ike == 1
    tried = manners.of(DIAL)
    manners.unheard(DIAL, tried)
    manners.unheard(DIAL, tried)
    assert manners.of(DIAL).is_in_udp


def test_a_silent_server_gets_the_next_offer_unless_one_has_worked() -> None:
    manners = Manners()
    manners.unanswered(DIAL, manners.of(DIAL), IkeStage.IKE)
    assert manners.of(DIAL).ike == 1
    manners.established(DIAL, manners.of(DIAL))
    manners.unanswered(DIAL, manners.of(DIAL), IkeStage.IKE)
    assert manners.of(DIAL).ike == 1, "it is down"
    manners.refused(DIAL, manners.of(DIAL), IkeStage.IKE)
    assert manners.of(DIAL).ike == 2, "it was changed"


def test_an_offer_after_silence_is_a_guess_until_the_first_is_repeated() -> None:
    manners = Manners()
    assert not manners.is_guess(DIAL)
    manners.refused(DIAL, manners.of(DIAL), IkeStage.IKE)
    assert not manners.is_guess(DIAL), "it said so"
    manners.unanswered(DIAL, manners.of(DIAL), IkeStage.IKE)
    manners.carried(DIAL, manners.of(DIAL))
    assert manners.is_guess(DIAL)
    manners.confirmed(DIAL)
    assert not manners.is_guess(DIAL)
    for stage, offers in ((IkeStage.IKE, IKE_OFFERS), (IkeStage.ESP, ESP_OFFERS)):
        for number, _ in enumerate(offers, 1):
            manners.unanswered(OTHER, manners.of(OTHER), stage)
            assert manners.is_guess(OTHER) is (number < len(offers))


def test_esp_goes_in_udp_every_other_time_while_nothing_comes() -> None:
    assert in_udp(Manners(), 4) == [False, True, False, True]


def test_esp_goes_as_it_did_when_it_came_through_but_for_every_third_time() -> None:
    manners = Manners()
    manners.carried(DIAL, Manner())
    assert in_udp(manners, 6) == [False, False, True, False, False, True]
    manners.carried(DIAL, Manner(is_in_udp=True))
    assert in_udp(manners, 6) == [True, True, False, True, True, False]


def test_a_later_netd_goes_on_in_the_manner_of_what_is_up() -> None:
    manners = Manners()
    manners.carried(DIAL, Manner(ike=3, esp=2, is_in_udp=True))
    assert manners.of(DIAL) == Manner(ike=3, esp=2, is_in_udp=True)


@given(st.lists(st.integers(0, 2**32 - 1), min_size=300, max_size=400))
@pytest.mark.slow
def test_the_number_of_remembered_servers_is_bounded(servers: list[int]) -> None:
    manners = Manners()
    for number in servers:
        dial = msgspec.structs.replace(DIAL, server=IPv4Address(number))
        manners.carried(dial, Manner(ike=1))
        assert manners.of(dial).ike == 1
    assert len(manners._known) <= 256
