"""Reasons for which a line is down: its state, and a sentence in plain words."""

from __future__ import annotations

from enum import Enum, StrEnum


class Cause(StrEnum):
    """The ``state`` of a line that is down."""

    WRONG_PASSWORD = "wrong_password"  # noqa: S105 (a state's name)
    WRONG_SECRET = "wrong_secret"  # noqa: S105
    UNREACHABLE = "unreachable"
    REFUSED = "refused"
    LOST = "lost"
    NO_CARRIER = "no_carrier"
    MISSING = "missing"
    INVALID = "invalid"
    FAILED = "failed"


class Failure(Exception):
    """A line could not be dialled, or went down. ``str()`` says why, in plain words.

    ``words`` are those of a server that refused the login, as far as it had any.
    """

    def __init__(self, cause: Cause, reason: str, words: str = "") -> None:
        super().__init__(reason)
        self.cause = cause
        self.words = words


class AccountInUse(Failure):
    """A server refused a login that may well be right: it still holds a session of the account."""

    def __init__(self, words: str) -> None:
        told = "the account may still be in use at the server"
        if words:
            told = f"the account may still be in use at the server: {words}"
        super().__init__(Cause.REFUSED, told, words)


class Stage(Enum):
    """The part of IKE in which a server refuses an offer, or does not answer it."""

    IKE = "ike"
    ESP = "esp"


class Declined(Failure):
    """A server took nothing of what it was offered at that stage. One that ``is_said`` to it
    without delay, so that the next offer may follow; others are silent.
    """

    def __init__(self, cause: Cause, reason: str, stage: Stage, *, is_said: bool) -> None:
        super().__init__(cause, reason)
        self.stage = stage
        self.is_said = is_said


class Unproved(Failure):
    """A server fell silent when it was to be shown the secret. It is wrong, or else the way broke
    in that moment.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(Cause.WRONG_SECRET, reason)
