"""The members of a site."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from egressd.api.wire.answers import Answer
from egressd.model.site import MemberState


class MemberList(Answer, frozen=True, kw_only=True):
    """The members of the site that this box belongs to."""

    data: Annotated[list[MemberState], Meta(description="Empty on a box of its own.")]
