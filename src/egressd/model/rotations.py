"""Rotations that a caller follows, and what a box keeps of them."""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from egressd.model.wording import Sentence

RotationState: TypeAlias = Literal["running", "done", "failed"]


class FollowedRotation(msgspec.Struct, frozen=True, kw_only=True):
    """A rotation, and what came of it."""

    id: str
    state: RotationState
    target: str
    client: str
    """Empty if it was about no single client."""
    clients: int
    """Clients with a rule of their own that have another member; 0 if it is about a node."""
    member: str
    """The new member of the one client, as rules name it; else empty."""
    exit_before: str
    exit_after: str
    """Addresses that far ends see; empty if unknown."""
    reason: Sentence
    """The reason for which it failed, or for which the new exit is unknown."""
    began_at: str
    ended_at: str
    """Empty while it runs."""


class KeptRotation(msgspec.Struct, frozen=True, kw_only=True):
    """A rotation, and what only the box knows of it."""

    owner: str
    """The id of the token of the link that began it; empty for one without a link."""
    node: int = 0
    """The id of the node that is to leave by another address; 0 for a group's rotation."""
    is_asked: bool = False
    """True if the node's page may have been asked: it must not be asked again."""
    rotation: FollowedRotation

    @property
    def is_running(self) -> bool:
        """True while its end is not known."""
        return self.rotation.state == "running"
