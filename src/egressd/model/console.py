"""The console's login sessions, and the record of changes and their authors."""

from __future__ import annotations

import msgspec

from egressd.model.wording import Coded, Coding, Sentence


class Session(msgspec.Struct, frozen=True, kw_only=True):
    """A browser that is logged in. Times are whole seconds of Unix time.

    ``key`` is a digest of the secret that the browser holds: a reader of the database cannot pose
    as the browser. ``id`` names the session in the console, and is no secret.
    """

    key: str
    id: str
    source: str
    """The IP address that the browser logged in from."""
    agent: str
    """The browser's ``User-Agent``, cut short."""
    created_at: int
    seen_at: int
    """The time of its last request, to within a minute."""


class ChangeRecord(Coding, frozen=True, kw_only=True):
    """One change that was acknowledged."""

    at: str
    """The time, such as ``2026-11-20T22:58:40Z``."""
    who: str
    """The author: ``token``, or ``session`` and its id."""
    source: str
    what: str
    """Method and path of the request."""
    text: Sentence
    """The text of the answer."""
    text_coded: Coded | None = None
    """The same for programs."""
    revision: int | None = None
    """The revision that it led to; None for a change of something else than the configuration."""
