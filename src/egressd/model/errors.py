"""The few errors of egressd, each with the facts that an error message needs.

`api` maps them to HTTP in one place: `Invalid` is a 400, `Missing` and `OverQuota` are business
failures (200 with an ``error``), `AlreadyThere` and `Obstructed`
are a 409, `Outdated` a 412, `TooOften` a 429, `Failed` a 500.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from egressd.model.faults import Fault, as_faults
from egressd.model.wording import Sentence, together

_TOLD_MAX: Final = 100
"""Problems of one request that its error message lists."""


class EgressdError(Exception):
    """The root of all errors that egressd raises on purpose."""


class Unfit(EgressdError):
    """A request that is not carried out because of its content; nothing was changed.

    ``faults`` holds every fault found. A sentence is enough for a fault that no program reads.
    """

    def __init__(self, *faults: Fault | str) -> None:
        self.faults = as_faults(faults)
        super().__init__(told(self.faults))

    @property
    def sentence(self) -> Sentence:
        """All faults as one sentence."""
        return together(fault.sentence for fault in self.faults[:_TOLD_MAX])

    @property
    def problems(self) -> tuple[str, ...]:
        """The faults' sentences, each of which names the field and the values it accepts."""
        return tuple(map(str, self.faults))


class Invalid(Unfit):
    """The request asks for something impossible."""


class Missing(Unfit):
    """A well-formed request for something that does not exist."""


class Outdated(Unfit):
    """A request for a change of something that is not any more what the caller has seen."""


class AlreadyThere(Unfit):
    """A well-formed request for something new that would be the same as something that exists."""


class Obstructed(Unfit):
    """A well-formed request that something stands in the way of, which the caller can change."""


class OverQuota(Unfit):
    """A well-formed request for more than the license or the device allows."""


class TooOften(Unfit):
    """A well-formed request that comes too soon after others; it may be made again later."""

    def __init__(self, again_s: int, *faults: Fault | str) -> None:
        """`again_s` is the number of seconds after which it may be made again."""
        super().__init__(*faults)
        self.again_s = again_s


class Failed(EgressdError):
    """The store or the data plane could not carry out the request; the old state is in force.

    ``action`` names the action and its object; ``cause`` is the reason in plain words.
    """

    def __init__(self, action: str, cause: str) -> None:
        super().__init__(f"{action}: {cause}")
        self.action = action
        self.cause = cause


class WriteConflict(Failed):
    """The stored state is not the one that a change was built against: another has written to it
    meanwhile. Nothing of the change was stored.
    """


class VersionConflict(Failed):
    """A change that the site's database, or a member of the site, takes from another version of
    egressd only. Nothing of it was stored, and the database is sound.
    """


class Unconfirmed(Failed):
    """A change was stored or it was not: the database did not say, and cannot be asked."""


def told(problems: Sequence[Fault] | Sequence[str]) -> str:
    """Return one text that lists the problems, the first `_TOLD_MAX` of them."""
    text = "; ".join(map(str, problems[:_TOLD_MAX]))
    more = len(problems) - _TOLD_MAX
    return f"{text}; and {more} more" if more > 0 else text
