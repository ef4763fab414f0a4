"""The findings about a machine: each thing that egressd lacks here, its cost, and its cure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Literal, TypeAlias, get_args

import msgspec

from egressd.model.wording import Sentence

Weight: TypeAlias = Literal["blocking", "limiting", "note"]
"""Blocking: clients stay blocked, or the service does not start. Limiting: a function is missing.
Note: worth knowing before the start."""
_WEIGHTS: Final = get_args(Weight)


class MachineFinding(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that the machine lacks."""

    weight: Weight
    subject: str
    text: Sentence
    cost: Sentence
    cure: Sentence


def heaviest_first(findings: Iterable[MachineFinding]) -> tuple[MachineFinding, ...]:
    """Return the findings by weight; those of one weight stay in their order."""
    return tuple(sorted(findings, key=lambda finding: _WEIGHTS.index(finding.weight)))
