"""Changes on trial: what changes is taken back as a whole, unless it is confirmed in time."""

from __future__ import annotations

from typing import Final

import msgspec

from egressd.model.desired import DesiredState, Edit

TRIAL_MAX_MINUTES: Final = 60
"""Minutes of the longest trial."""


class ChangeTrial(msgspec.Struct, frozen=True, kw_only=True):
    """A trial that goes on."""

    began_at: int
    """Seconds of Unix time."""
    minutes: int
    who: str
    revision: int
    """The revision that its changes are taken back to."""

    @property
    def ends_at(self) -> int:
        """The Unix time in seconds at which its changes are taken back."""
        return self.began_at + 60 * self.minutes


def taking_back(state: DesiredState, first: DesiredState) -> list[Edit]:
    """Return the edits by which `state` has again what `first` had. Ids and numbers that were given
    meanwhile are not given again, so that they stay.
    """
    edits = [e for e in state.edits_to(first) if e.table not in ("settings", "last_ids")]
    # Unlike with a restored backup, the device is stopped or open as it was: that is why there
    # are trials.
    if state.settings != first.settings:
        edits.append(Edit("settings", 0, first.settings))
    return edits
