"""The exits of targets in use."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from egressd.api.wire.answers import Answer
from egressd.service.exits import Exit


class ExitList(Answer, frozen=True, kw_only=True):
    """The exits of all targets in use, and how they are found out."""

    url: Annotated[str, Meta(description="The page that is asked.")]
    check_interval_s: Annotated[
        int, Meta(description="Seconds between two requests by a target; 0 if none is asked.")
    ]
    data: Annotated[list[Exit], Meta(description="DIRECT, WANs, lines, then nodes, by name.")]
