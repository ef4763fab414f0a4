"""The check of the machine: what it lacks."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from egressd.api.wire.answers import Answer
from egressd.model.findings import MachineFinding, Weight
from egressd.model.wording import Coded, Coding, Sentence


class CheckFinding(Coding, frozen=True, kw_only=True):
    """One thing that the machine lacks."""

    weight: Annotated[
        Weight,
        Meta(
            description="`blocking`: clients are blocked, or changes are refused. `limiting`: a "
            "function is missing. `note`: worth knowing."
        ),
    ]
    subject: Annotated[str, Meta(description="The part of the machine, in a word or two.")]
    text: Annotated[Sentence, Meta(description="What is missing.")]
    text_coded: Coded | None = None
    cost: Annotated[Sentence, Meta(description="What does not work without it.")]
    cost_coded: Coded | None = None
    cure: Annotated[Sentence, Meta(description="What to do about it.")]
    cure_coded: Coded | None = None

    @classmethod
    def of(cls, found: MachineFinding) -> CheckFinding:
        """As found."""
        return cls(
            weight=found.weight,
            subject=found.subject,
            text=found.text,
            cost=found.cost,
            cure=found.cure,
        )


class CheckFindings(Answer, frozen=True, kw_only=True):
    """All that the machine lacks; empty if it lacks nothing."""

    data: Annotated[list[CheckFinding], Meta(description="The heaviest first.")]
