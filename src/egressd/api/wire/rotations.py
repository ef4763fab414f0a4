"""Rotations by links, and of nodes, on the wire."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec
from fastapi import Path
from msgspec import Meta
from pydantic import Field

from egressd.api.wire.answers import Answer, Message
from egressd.api.wire.bodies import Query
from egressd.api.wire.fields import form
from egressd.model.rotations import FollowedRotation, RotationState
from egressd.model.wording import Sentence
from egressd.service.rotations import ALL, LinkView

_OCTET: Final = r"(25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"

LinkKey = Annotated[
    str,
    Path(
        alias="key",
        min_length=1,
        max_length=100,
        description="A token of the one scope `rotate:…`.",
    ),
]
RotationId = Annotated[
    str, Path(alias="id", min_length=1, max_length=100, description="The id of a rotation.")
]

NodeRotationId = Annotated[
    str, Path(alias="rotation", min_length=1, max_length=100, description="The id of a rotation.")
]


class RotateQuery(Query):
    """The clients that get another member."""

    client: Annotated[
        str | None,
        Field(
            max_length=15,
            pattern=rf"^({ALL}|({_OCTET}\.){{3}}{_OCTET})$",
            description="A client with a rule of its own, or `all` of the group. Else it is the "
            "one that asks.",
            json_schema_extra=form("rotation-client-form"),
        ),
    ] = None


class LinkShown(Answer, frozen=True, kw_only=True):
    """The meaning of a link for its caller."""

    target: Annotated[str, Meta(description="As rules name it.")]
    client: Annotated[
        str,
        Meta(description="The caller's address if it is a client of the group; else empty."),
    ]
    member: Annotated[str, Meta(description="The member that this client has, if known.")]
    exit_ip: Annotated[str, Meta(description="The last known exit of that; empty if unknown.")]


class RotationShown(Answer, frozen=True, kw_only=True):
    """A rotation, and what came of it."""

    id: str
    state: Annotated[
        RotationState,
        Meta(description="`running` while the new exit is asked for, then the result."),
    ]
    target: Annotated[str, Meta(description="As rules name it.")]
    client: Annotated[str, Meta(description="Empty if it was about no single client.")]
    clients: Annotated[int, Meta(description="Clients with a rule of their own that moved.")]
    member: Annotated[str, Meta(description="The new member of the one client; else empty.")]
    exit_before: Annotated[str, Meta(description="The last known exit; empty if unknown.")]
    exit_after: Annotated[str, Meta(description="The address that a page on the internet sees.")]
    reason: Annotated[Sentence, Meta(description="Why it failed, or why the new exit is unknown.")]
    began_at: str
    ended_at: Annotated[str, Meta(description="Empty while it runs.")]


class RotationBegun(RotationShown, frozen=True, kw_only=True):
    """It has begun; `Location` has the rest."""

    msg: Message


def link_shown(view: LinkView) -> LinkShown:
    """Return what a link means."""
    return LinkShown(
        target=str(view.target), client=view.client, member=view.member, exit_ip=view.exit_ip
    )


def rotation_shown(rotation: FollowedRotation) -> RotationShown:
    """Return a rotation."""
    return RotationShown(**msgspec.structs.asdict(rotation))


def rotation_begun(rotation: FollowedRotation, msg: Message) -> RotationBegun:
    """Return the answer to the request that began a rotation."""
    return RotationBegun(msg=msg, **msgspec.structs.asdict(rotation))
