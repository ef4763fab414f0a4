"""Placement of egressd's policy rules ahead of other programs'.

A rule that is added without a priority comes right behind the kernel's first one, ahead of all
others (``fib_default_rule_pref`` in the kernel's fib_rules.c): ``wg-quick up`` adds such rules,
which then look up LAN clients' packets in WireGuard's table. So egressd's rules move in front of
the first foreign rule that may match such packets, close together, and back when it is gone.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

import msgspec
from msgspec.structs import replace

from egressd.model.facts import ForeignRule
from egressd.model.routing import PolicyRule
from egressd.model.wording import Sentence, say


class Placed(msgspec.Struct, frozen=True):
    """egressd's rules with their wanted priorities."""

    rules: tuple[PolicyRule, ...]
    problems: tuple[Sentence, ...]
    """A sentence for each family in which other programs' rules stay ahead of egressd's."""


def place(
    rules: Iterable[PolicyRule], foreign: Iterable[ForeignRule], lans: Collection[str]
) -> Placed:
    """Put `rules` ahead of the `foreign` ones that may match packets of LAN clients or of
    egressd.
    """
    rules, foreign = list(rules), list(foreign)
    problems = []
    placed: list[PolicyRule] = []
    for family in (4, 6):
        own = [rule for rule in rules if rule.family == family]
        priorities = sorted({rule.priority for rule in own})
        if not priorities:
            continue
        ahead = sorted(
            rule.priority
            for rule in foreign
            if rule.family == family and rule.priority <= priorities[-1] and _may_take(rule, lans)
        )
        if not ahead:
            placed += own
            continue
        first = ahead[0] - len(priorities)
        if first > 0:
            numbers = dict(zip(priorities, range(first, ahead[0]), strict=True))
            placed += [replace(rule, priority=numbers[rule.priority]) for rule in own]
        else:
            placed += own
            command = "ip rule show" if family == 4 else "ip -6 rule show"
            problems.append(
                say(
                    "policy-rules-ahead",
                    most=priorities[-1],
                    command=command,
                    priorities=tuple(map(str, ahead)),
                )
            )
    return Placed(tuple(placed), tuple(problems))


def _may_take(rule: ForeignRule, lans: Collection[str]) -> bool:
    """True if it may apply to a LAN client's packet, or to one of this machine's own."""
    return not rule.is_vrf and rule.iif in ("", "lo", *lans)
