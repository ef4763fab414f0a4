"""Why a line is down: the state that it is in, and the reason in plain words."""

from __future__ import annotations

from enum import StrEnum


class Cause(StrEnum):
    """Why a line is down: the ``state`` of its status."""

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
