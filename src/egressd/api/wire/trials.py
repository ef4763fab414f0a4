"""Changes on trial."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from egressd.api.wire.answers import Answer, Message
from egressd.api.wire.bodies import Body
from egressd.model.trial import TRIAL_MAX_MINUTES
from egressd.service.trials import TrialState


class TrialBegin(Body):
    """The length of a trial."""

    minutes: Annotated[
        int,
        Field(
            ge=1,
            le=TRIAL_MAX_MINUTES,
            description="After these, what was changed meanwhile is taken back.",
        ),
    ] = 5


class TrialAnswer(TrialState, frozen=True, kw_only=True):
    """Changes on trial."""


class SaidOfTrial(Answer, frozen=True, kw_only=True):
    """It is stored."""

    msg: Message
