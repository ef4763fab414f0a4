"""Who is logged in to the console, and who changed what."""

from __future__ import annotations

import msgspec


class Session(msgspec.Struct, frozen=True, kw_only=True):
    """A browser that is logged in. Times are whole seconds of Unix time.

    ``key`` is a digest of the secret that the browser holds: who reads the database cannot
    pose as the browser. ``id`` names the session to people, and is no secret.
    """

    key: str
    id: str
    source: str
    """Where it logged in from: an IP address."""
    agent: str
    """The browser's ``User-Agent``, cut short."""
    created_at: int
    seen_at: int
    """When its last request came, to within a minute."""


class ChangeRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One change that was acknowledged."""

    at: str
    """As ``2026-11-20T22:58:40Z``."""
    who: str
    """``token``, or ``session`` and its id."""
    source: str
    what: str
    """Method and path."""
    text: str
    """What was answered."""
