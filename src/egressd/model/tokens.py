"""Tokens for programs that may do less than the device's own token, and what each scope covers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Literal, TypeAlias

import msgspec

Need: TypeAlias = Literal["read", "write", "admin", "metrics", "events"]
"""The least scope that covers an endpoint."""

ROTATE: Final = "rotate:"
"""The beginning of a scope for the rotation of one target, which follows as rules name it, or as
`service.link_targets` keeps it. Such a scope is its token's only one, and the token may stand in a
URL."""
COVERED_BY: Final[Mapping[Need, frozenset[str]]] = {
    "read": frozenset({"read", "write", "admin"}),
    "write": frozenset({"write", "admin"}),
    "admin": frozenset({"admin"}),
    "metrics": frozenset({"metrics", "read", "write", "admin"}),
    "events": frozenset({"events", "read", "write", "admin"}),
}
"""The need of an endpoint -> the scopes that cover it."""
TOKENS_MAX: Final = 500
"""Tokens that a device keeps, expired ones included."""
TOKEN_NAME_MAX: Final = 64
"""Characters in a token's name."""
SCOPES_MAX: Final = 32
"""Scopes of one token."""


def link_target(scopes: Sequence[str]) -> str:
    """Return the target that a token of these scopes rotates; empty if it is for something else."""
    is_link = len(set(scopes)) == 1 and scopes[0].startswith(ROTATE)
    return scopes[0].removeprefix(ROTATE) if is_link else ""


class ScopedToken(msgspec.Struct, frozen=True, kw_only=True):
    """A token that an operator made for a program. Times are whole seconds of Unix time.

    ``digest`` is the SHA-256 of the token, in hexadecimal digits: a reader of the database cannot
    pose as the program. A slow hash as for passwords would add nothing, since a token has 256
    random bits and cannot be guessed; each request would pay for it.
    """

    id: str
    """Eight hexadecimal digits, which are no secret."""
    name: str
    digest: str
    scopes: tuple[str, ...]
    created_at: int
    created_by: str
    """The author, as the record of changes names one."""
    expires_at: int = 0
    """0 if it does not expire."""
    last_used_at: int = 0
    """0 if it was never used."""

    def covers(self, need: Need) -> bool:
        """Return True if one of its scopes covers what an endpoint needs."""
        return not COVERED_BY[need].isdisjoint(self.scopes)

    @property
    def rotates(self) -> str:
        """The target that it rotates, as it is kept; empty for a token with another scope."""
        return link_target(self.scopes)

    def is_expired(self, now: float) -> bool:
        """Return True if it does not count any more at the Unix time `now`."""
        return bool(self.expires_at) and now >= self.expires_at
