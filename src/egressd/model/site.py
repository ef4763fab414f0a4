"""The members of a site, and the log that they follow."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from egressd.model.desired import Edit


class LogEntry(msgspec.Struct, frozen=True):
    """The edits that led to a revision of the site's state."""

    revision: int
    edits: Sequence[Edit]


class StatePoint(msgspec.Struct, frozen=True):
    """A point in the history of a site's state.

    Two copies of a database may have the same revision after different changes; they have no batch
    in common from there on.
    """

    revision: int
    batch: str
    """The UUID of the log's entry for the revision."""


class MemberSeen(msgspec.Struct, frozen=True, kw_only=True):
    """A member of the site, as the database has it at one moment."""

    id: int
    name: str
    is_revoked: bool = False
    is_ungated: bool = False
    """True if its kernel lets clients through without a lease."""
    version: str = ""
    """Its version of egressd; empty before its first start."""
    n: int | None = None
    """Another number with each beat; None if there is none since the database's last start."""
    applied: int = -1
    """The revision in force in its kernel; -1 if none of the database's history is."""
    is_fenced: bool = False
    """True if its beats prolong no lease, until it has joined again."""
    role: str = ""
    blocked: tuple[str, ...] = ()
    """Names of targets that cannot be in force there."""
    role_since: str | None = None
    """The time of the last change of its role; None if it is not known."""
    attempt: int | None = None
    """The number of a change of which it is not known whether it is in force there; None if there
    is none."""


class MemberState(msgspec.Struct, frozen=True, kw_only=True):
    """A member of the site, for an operator."""

    name: str
    is_this: bool
    """True for the box that is asked."""
    version: str
    """Its version of egressd; empty before its first start."""
    revision: int | None
    """The revision in force there; null if none of the site's history is known to be."""
    lag: int | None
    """The number of the site's changes that it lacks; null as `revision` is."""
    role: str
    """Its role in a pair, `active`, `standby` or `fault` (it cannot become active); empty if it is
    in none."""
    role_since: str | None
    """Since then (UTC, by the database's clock) it has had this role; null if that is not known."""
    is_beating: bool
    """True if it has shown that it lives within the seconds that a lease lasts."""
    is_shut_out: bool
    """True if it lets no client through until it is in step with the site again."""
    needs_lease: bool
    """True if its kernel lets clients through by a lease only."""
    blocked: tuple[str, ...]
    """Names of targets that cannot be in force there, and block their clients there."""

    @classmethod
    def of(cls, seen: MemberSeen, reading: SiteReading, *, is_beating: bool) -> MemberState:
        """Return the state of a member of a reading."""
        is_known = seen.applied >= 0
        return cls(
            name=seen.name,
            is_this=seen.id == reading.me,
            version=seen.version,
            revision=seen.applied if is_known else None,
            lag=reading.head - seen.applied if is_known else None,
            role=seen.role,
            role_since=seen.role_since if seen.role else None,
            is_beating=is_beating,
            is_shut_out=seen.is_fenced,
            needs_lease=not seen.is_ungated,
            blocked=seen.blocked,
        )


class SiteReading(msgspec.Struct, frozen=True, kw_only=True):
    """All members of the site, this one included, and the revision of its state."""

    me: int
    head: int
    members: tuple[MemberSeen, ...]
    is_in_log: bool = False
    """True if the state in force here is one of the database's history."""
    is_beaten: bool = False
    """True if this member's own beat was taken: then it may prolong its lease."""
    is_outdated: bool = False
    """True if the database's schema is for a newer egressd than this box's."""

    @property
    def is_fenced(self) -> bool:
        """True if this member's own beats prolong no lease."""
        return any(seen.is_fenced for seen in self.members if seen.id == self.me)
