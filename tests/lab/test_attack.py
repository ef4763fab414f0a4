"""A short run of the attacks that ``script/attack`` does at length."""

from __future__ import annotations

from typing import Final

import pytest

from egressd_lab.attack import bystanders
from egressd_lab.attack.story import Attack

pytestmark = [pytest.mark.lab, pytest.mark.alone, pytest.mark.timeout(240)]

PATIENCE_S: Final = 15.0
"""Seconds that a bystander waits for an answer: ``script/attack``, which has the machine to itself,
takes fewer.
"""


def test_half_a_minute_of_attacks_affects_no_client(
    namespaces: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bystanders, "PATIENCE_S", PATIENCE_S)
    told: list[str] = []
    report = Attack(minutes=0.6, seed=7, say=told.append).run()
    assert report.breaches == [], "\n".join(["seed 7", *told])
    assert all(report.tried.values()), "a hand has tried nothing"
    assert all(number > 20 for number in report.served.values())
