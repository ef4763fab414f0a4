"""A pair while the wall clocks of its boxes and of its database jump by more than a year."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import timedelta

import pytest

from egressd.service.membership import TTL_S
from egressd_lab.device import rule_body
from egressd_lab.packets import new_token
from egressd_lab.wallclock import READ_AFTER_S
from tests.support.device import eventually
from tests.support.paired_lab import DATABASE, PairedLab, longest_gap, other, paired_lab

pytestmark = pytest.mark.lab

YEAR = timedelta(days=400)
GAP_S = 1.0


@pytest.fixture(scope="module")
def pair(namespaces: None) -> Iterator[PairedLab]:
    """A pair whose first client leaves by DIRECT."""
    with paired_lab(clients=1, has_clocks=True) as pair:
        rule = {"ip": pair.lab.client(1).address, "target_node": "DIRECT"}
        pair.boxes[1].api.post("/rules", rule)
        eventually(lambda: pair.seen(1) == pair.shared(1))
        yield pair


@pytest.mark.parametrize(
    "clocks",
    [
        {1: YEAR, 2: -YEAR, DATABASE: YEAR},
        {1: -YEAR, 2: YEAR, DATABASE: -YEAR},
        {1: timedelta(), 2: timedelta(), DATABASE: timedelta()},
    ],
    ids=["apart", "exchanged", "home"],
)
def test_no_lease_is_lost_when_clocks_jump(pair: PairedLab, clocks: dict[int, timedelta]) -> None:
    first, token = pair.active(), new_token()
    with pair.lab.internet.capture("isp1", keep=True) as capture:
        flood = pair.lab.client(1).flood(token, rate=50)
        for of, offset in clocks.items():
            pair.clocks[of].set(offset)
        end = time.monotonic() + READ_AFTER_S + TTL_S + 1  # each lease from before is over then
        while time.monotonic() < end:
            assert [pair.problems(box) for box in pair.boxes] == [[], []]
            assert pair.active() == first
        flood.stop()
        assert longest_gap(capture, token) < GAP_S
    (rule, *_) = pair.boxes[1].api.get("/rules")["data"]
    for box in pair.boxes.values():
        box.api.put(f"/rules/{rule['id']}", {**rule_body(rule), "comment": f"{box} {clocks}"})


def test_no_lease_lasts_longer_when_clocks_jump(pair: PairedLab) -> None:
    first = pair.active()
    second = other(first)
    (rule, *_) = pair.boxes[second].api.get("/rules")["data"]
    with pair.frozen(first):
        for clock in pair.clocks.values():
            clock.set(-YEAR)
        began = time.monotonic()
        # It is answered once the other box, whose processes are frozen, has certainly stopped.
        answer = pair.boxes[second].api.put(
            f"/rules/{rule['id']}", {**rule_body(rule), "target_node": "REJECT"}
        )
        assert time.monotonic() - began < 3 * TTL_S
        eventually(lambda: pair.holders().get(second, False), 30)
        assert not pair.seen(1)
    eventually(lambda: pair.roles(second) == {first: "standby", second: "active"}, 30)
    assert not pair.seen(1)
    assert answer
