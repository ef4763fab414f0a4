"""How fast the clients of each target send and receive, from readings of their rules' counters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from egressd.model.messages import RuleCount
from egressd.model.nouns import Rule

READ_EVERY_S: Final = 5.0
"""Reading the counters of 10,000 rules takes netd 150 ms."""
_FORGOTTEN_S: Final = 4 * READ_EVERY_S
"""Nobody looked for so long: an average over all of it would say nothing of now."""
_WEIGHT: Final = 0.4
"""Of the latest reading in the average: a picture that is made of it shall move, and not jump."""


class Rate(NamedTuple):
    """Bits a second of IP packets, as the clients see them."""

    upload: float = 0.0
    download: float = 0.0


class TargetRates:
    """A running average for each target that enabled rules name."""

    def __init__(self) -> None:
        self._at = 0.0
        self._counted: Mapping[int, RuleCount] = {}
        self._rates: dict[str, Rate] = {}

    def of(self, target: str) -> Rate:
        """The rate of a target; zero where nothing is known of it."""
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
                continue  # its counting began anew
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
