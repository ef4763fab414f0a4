"""Rates of targets, computed from their rules' counters."""

from __future__ import annotations

import pytest

from egressd.model.messages import RuleCount
from egressd.model.nouns import Rule
from egressd.service.target_rates import Rate, TargetRates

RULES = {
    1: Rule(id=1, ip="10.0.0.1", target_node="hk"),
    2: Rule(id=2, ip="10.0.0.2", target_node="hk"),
    3: Rule(id=3, ip="10.0.0.3", target_node="DIRECT"),
}


def count(up: int, down: int) -> RuleCount:
    return RuleCount(up, 1, down, 1)


def test_the_rate_of_a_target_is_the_sum_of_its_clients() -> None:
    rates = TargetRates()
    rates.take(100.0, {1: count(0, 0), 2: count(500, 0), 3: count(7, 7)}, RULES)
    assert rates.of("hk") == Rate(0, 0)
    for n in range(1, 40):
        rates.take(
            100.0 + 5 * n,
            {1: count(1000 * n, 0), 2: count(500, 5000 * n), 3: count(7, 7)},
            RULES,
        )
    assert rates.of("hk") == pytest.approx((8 * 1000 / 5, 8 * 5000 / 5), rel=1e-3)
    assert rates.of("DIRECT") == Rate(0, 0)


def test_a_rate_without_traffic_decays_to_zero() -> None:
    rates = TargetRates()
    rates.take(100.0, {1: count(0, 0)}, RULES)
    rates.take(105.0, {1: count(5000, 0)}, RULES)
    seen = [rates.of("hk").upload]
    for n in range(2, 40):
        rates.take(100.0 + 5 * n, {1: count(5000, 0)}, RULES)
        seen.append(rates.of("hk").upload)
    assert seen == sorted(seen, reverse=True)
    assert 0 < seen[1] < seen[0]
    assert seen[-1] == 0


def test_reset_counters_and_added_or_deleted_rules_are_ignored() -> None:
    rates = TargetRates()
    rates.take(100.0, {1: count(9000, 9000), 9: count(0, 0)}, RULES)
    rates.take(105.0, {1: count(10, 10), 2: count(10**9, 0), 9: count(10**9, 0)}, RULES)
    assert rates.of("hk") == Rate(0, 0)


def test_an_old_reading_is_not_compared() -> None:
    rates = TargetRates()
    rates.take(100.0, {1: count(0, 0)}, RULES)
    rates.take(105.0, {1: count(5000, 0)}, RULES)
    assert rates.of("hk").upload > 0
    rates.take(3700.0, {1: count(10**9, 0)}, RULES)
    assert rates.of("hk") == Rate(0, 0)
    rates.take(3705.0, {1: count(10**9 + 5000, 0)}, RULES)
    assert rates.of("hk").upload > 0
