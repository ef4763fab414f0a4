"""A short run of the attacks that ``script/attack`` does at length.

It measures how long clients and callers wait, so it has the machine to itself.
"""

from __future__ import annotations

import pytest

from egressd_lab.attack.story import Attack

pytestmark = [pytest.mark.lab, pytest.mark.alone, pytest.mark.timeout(240)]


def test_half_a_minute_of_attacks_affects_no_client(namespaces: None) -> None:
    told: list[str] = []
    report = Attack(minutes=0.6, seed=7, say=told.append).run()
    assert report.breaches == [], "\n".join(["seed 7", *told])
    assert all(report.tried.values()), "a hand has tried nothing"
    assert all(number > 20 for number in report.served.values())
