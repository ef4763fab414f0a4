"""The speed at which the clients of each target send and receive, from counters of their rules."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from egressd.model.messages import RuleCount
from egressd.model.nouns import Rule

READ_EVERY_S: Final = 5.0
"""Seconds between readings: reading the counters of 10,000 rules takes netd 150 ms."""
_FORGOTTEN_S: Final = 4 * READ_EVERY_S
"""Seconds without a reading after which an average over all of them would be outdated."""
_WEIGHT: Final = 0.4
"""Weight of the latest reading in the average: a graph of it moves smoothly, without jumps."""


class Rate(NamedTuple):
    """Bits per second of IP packets, as the clients measure them."""

    upload: float = 0.0
    download: float = 0.0


class TargetRates:
    """A running average for each target that enabled rules name."""

    def __init__(self) -> None:
        self._at = 0.0
        self._counted: Mapping[int, RuleCount] = {}
        self._rates: dict[str, Rate] = {}

    def of(self, target: str) -> Rate:
        """Return the rate of a target; zero if it is unknown."""
        return self._rates.get(target, Rate())

    def take(self, at: float, counted: Mapping[int, RuleCount], rules: Mapping[int, Rule]) -> None:
        """Take a reading of the counters, by rule, made at `at` seconds of a steady clock."""
        seconds, before = at - self._at, self._counted
        self._at, self._counted = at, counted
        if not 0 < seconds < _FORGOTTEN_S:
            self._rates = {}
            return
        latest: dict[str, Rate] = {}
        for key, now in counted.items():
            then, rule = before.get(key), rules.get(key)
            if then is None or rule is None or now == then:
                continue
            up, down = now.up_bytes - then.up_bytes, now.down_bytes - then.down_bytes
            if up < 0 or down < 0:
                continue  # its counter was reset
            sum_ = latest.get(rule.target_node, Rate())
            latest[rule.target_node] = Rate(
                sum_.upload + 8 * up / seconds, sum_.download + 8 * down / seconds
            )
        mixed = {
            target: _mixed(self.of(target), latest.get(target, Rate()))
            for target in self._rates.keys() | latest.keys()
        }
        self._rates = {target: rate for target, rate in mixed.items() if sum(rate) >= 1}


def _mixed(average: Rate, latest: Rate) -> Rate:
    return Rate(*(old + _WEIGHT * (new - old) for old, new in zip(average, latest, strict=True)))
