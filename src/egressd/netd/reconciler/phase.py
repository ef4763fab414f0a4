"""The phase of netd, from its start to its end.

``docs/promises.md`` has the traffic that is allowed in each state of the device.
"""

from __future__ import annotations

from enum import Enum, auto

from egressd.model.plan import GlobalPolicy


class Phase(Enum):
    """The state of the device, as netd holds it."""

    GUARDED = auto()
    """The default-deny rules are in force, and the table is an earlier netd's or the stored
    plan's; `Reconciler.start` has yet to load it."""
    RESTORING = auto()
    """A stored plan is in force or being put in force, or none is: the api's plan has yet to come.
    """
    RUNNING = auto()
    """A plan is in force, and the tables of clients apply."""
    STOPPED = auto()
    """A plan is in force that blocks every client."""
    OPENED = auto()
    """A plan is in force that has no rules for clients."""
    ENDING = auto()
    """`Reconciler.stop` or `Reconciler.release` has begun: nothing changes any more."""

    @property
    def is_loaded(self) -> bool:
        """True if netd has loaded its table."""
        return self is not Phase.GUARDED

    @property
    def reported(self) -> str:
        """The phase as `Status.state` has it."""
        if self in (Phase.GUARDED, Phase.RESTORING):
            return "restoring"
        return "stopped" if self is Phase.STOPPED else "running"


def phase_under(policy: GlobalPolicy) -> Phase:
    """Return the phase in which a plan with this policy is in force."""
    if policy.stopped:
        return Phase.STOPPED
    return Phase.OPENED if policy.opened else Phase.RUNNING
