"""The common base of the wire schemas of requests.

A POST may leave out what has a default; a PUT replaces the whole and takes every field.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from egressd.api.wire.fields import Id, Rows
from egressd.model.bounds import BATCH_MAX


class Body(BaseModel):
    """A JSON object with exactly the named fields, of exactly the named types."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


class Query(BaseModel):
    """The parameters of a query, and no others."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Ids(Body):
    """Things by id. Those that are not there are passed over."""

    ids: Annotated[list[Id], Field(max_length=BATCH_MAX)]


class StatusUpdate(Body):
    """A switch."""

    is_enabled: bool


class StatusBatch(Ids):
    """A switch for several things."""

    is_enabled: bool


class TextImport(Body):
    """Rows to import."""

    text: Annotated[Rows, Field(description="Rows separated by newline.")]
    replace: Annotated[bool, Field(description="Remove everything there is first.")] = False
