"""The few errors of egressd, each with what a caller needs to tell a person.

`api` translates them to HTTP in one place: `Invalid` is a 400, `Missing` and `OverQuota`
are business failures (200 with an ``error``), `Failed` is a 500.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

_TOLD_MAX: Final = 100
"""Problems that are told of one request."""


class EgressdError(Exception):
    """The root of all errors that egressd raises on purpose."""


class Invalid(EgressdError):
    """The request asks for something that cannot be: nothing was changed.

    ``problems`` holds every fault found, each a sentence that names the field and says
    what it takes.
    """

    def __init__(self, *problems: str) -> None:
        super().__init__(told(problems))
        self.problems = problems


class Missing(EgressdError):
    """A well-formed request about something that is not there."""


class OverQuota(EgressdError):
    """A well-formed request for more than the license or the device allows."""


class Failed(EgressdError):
    """The store or the data plane could not do what was asked; the old state is in force.

    ``action`` names what was tried, on what; ``cause`` is the reason in plain words.
    """

    def __init__(self, action: str, cause: str) -> None:
        super().__init__(f"{action}: {cause}")
        self.action = action
        self.cause = cause


def told(problems: Sequence[str]) -> str:
    """The text of an answer that tells of them: of all, unless they are very many."""
    text = "; ".join(problems[:_TOLD_MAX])
    more = len(problems) - _TOLD_MAX
    return f"{text}; and {more} more" if more > 0 else text
