"""Reasons for which a line is down: its state, and a sentence in plain words."""

from __future__ import annotations

from enum import Enum, StrEnum

from egressd.model.wording import Sentence, say


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
    """A line could not be dialled, or went down. ``reason`` is a sentence in plain words.

    ``words`` are the server's text about a refused login, if there is one.
    """

    def __init__(self, cause: Cause, reason: Sentence, words: str = "") -> None:
        super().__init__(reason)
        self.cause = cause
        self.reason = reason
        self.words = words


class AccountInUse(Failure):
    """A server refused a login that may well be right: it still holds a session of the account."""

    def __init__(self, words: str) -> None:
        told = say("account-in-use-saying", said=words) if words else say("account-in-use")
        super().__init__(Cause.REFUSED, told, words)


class CarrierChanged(Failure):
    """The path to the server is another one now. Neither line nor server has failed."""

    def __init__(self, reason: Sentence) -> None:
        super().__init__(Cause.LOST, reason)


class IkeStage(Enum):
    """The part of IKE in which a server refuses an offer, or does not answer it."""

    IKE = "ike"
    ESP = "esp"


class Declined(Failure):
    """A server accepted no proposal of an offer at that stage. ``is_said`` is True if it answered
    so, and the next offer may follow without delay; other servers are silent.
    """

    def __init__(self, cause: Cause, reason: Sentence, stage: IkeStage, *, is_said: bool) -> None:
        super().__init__(cause, reason)
        self.stage = stage
        self.is_said = is_said


class Unproved(Failure):
    """A server fell silent when the secret was used: the secret is wrong, or the path broke in that
    moment.
    """

    def __init__(self, reason: Sentence) -> None:
        super().__init__(Cause.WRONG_SECRET, reason)
