"""Changes, and undoing them."""

from __future__ import annotations

from typing import Annotated

from fastapi import Path
from msgspec import Meta
from pydantic import BeforeValidator, Field

from egressd.api.wire.answers import Answer
from egressd.api.wire.bodies import Body, Query
from egressd.api.wire.fields import decimal, form
from egressd.model.bounds import ID_MAX
from egressd.model.wording import Sentence
from egressd.service.undo import ChangeDetails, ChangedObject, ListedChange

CHANGES_MAX = 1000

RevisionInPath = Annotated[
    int,
    Path(
        alias="revision",
        ge=1,
        le=ID_MAX,
        strict=True,
        description="The revision that the change led to.",
        json_schema_extra=form("id"),
    ),
    BeforeValidator(decimal),
]


class ChangesQuery(Query):
    """The number of the latest changes to return."""

    limit: Annotated[int, Field(ge=1, le=CHANGES_MAX, strict=True), BeforeValidator(decimal)] = 200


class Changes(Answer, frozen=True, kw_only=True):
    """The latest first."""

    data: list[ListedChange]


class ChangeAnswer(ChangeDetails, frozen=True, kw_only=True):
    """A change of the configuration, field by field."""


class UndoBody(Body):
    """A request to undo a change, or to show what that would do."""

    dry_run: Annotated[bool, Field(description="True to change nothing.")] = False


class UndoAnswer(Answer, frozen=True, kw_only=True):
    """The effect of undoing a change, or the one that it would have."""

    msg: Annotated[Sentence, Meta(description="What was done; empty for a dry run.")]
    revision: Annotated[
        int | None, Meta(description="The change that it is itself; null for a dry run.")
    ]
    total: Annotated[int, Meta(description="All objects.")]
    objects: Annotated[list[ChangedObject], Meta(description="The first 100.")]
    notes: Annotated[Sentence, Meta(description="What to know about it: what it blocks.")]
