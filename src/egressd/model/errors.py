"""The few errors of egressd, each with what a caller needs to tell a person.

`api` translates them to HTTP in one place: `Invalid` is a 400, `Missing` and `OverQuota`
are business failures (200 with an ``error``), `Failed` is a 500.
"""

from __future__ import annotations


class EgressdError(Exception):
    """The root of all errors that egressd raises on purpose."""


class Invalid(EgressdError):
    """The request asks for something that cannot be: nothing was changed.

    ``problems`` holds every fault found, each a sentence that names the field and says
    what it takes.
    """

    def __init__(self, *problems: str) -> None:
        super().__init__("; ".join(problems))
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
