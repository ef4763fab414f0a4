"""The outside world that the use cases depend on, as protocols.

`app` passes the real implementations: the SQLite store and the client of netd's socket. Tests of
this room pass doubles that pass the same contract tests.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from egressd.model.delays import Delay
from egressd.model.desired import DesiredState, Edit
from egressd.model.devices import DhcpLease, LanDevice
from egressd.model.exits import KnownExit
from egressd.model.findings import MachineFinding
from egressd.model.history import (
    By,
    Exchanged,
    HistoryKey,
    HistoryStep,
    SlotStart,
    Sums,
    TrafficSlot,
)
from egressd.model.instances import KernelPath, NodePath
from egressd.model.messages import (
    ConnectionsClosed,
    ConnectionsListed,
    FetchPage,
    LineStatus,
    Located,
    PageFetched,
    Probe,
    Rotated,
    RuleCount,
    Status,
)
from egressd.model.plan import Change, Plan
from egressd.model.site import LogEntry, SiteReading, StatePoint
from egressd.model.timelines import Part, Recording, StateChange, TimelineWrite
from egressd.model.trial import ChangeTrial
from egressd.model.undo import LoggedChange, PastChange, Reversal
from egressd.model.wording import Sentence


class Store(Protocol):
    """The durable storage of the desired state. One writer at a time."""

    async def load(self) -> DesiredState:
        """Return the stored state. Raises Failed if the database cannot be trusted."""
        ...

    async def begin(
        self, edits: Sequence[Edit], revision: int, logged: LoggedChange | None = None
    ) -> None:
        """Write `edits` inside an open transaction, and add `logged` to the log of changes with
        their inverses: durable only after `commit`.
        """
        ...

    async def commit(self) -> None:
        """Make the open transaction durable (fsync) before returning."""
        ...

    async def rollback(self) -> None:
        """Roll back the open transaction."""
        ...

    async def entries_after(self, revision: int) -> Sequence[LogEntry] | None:
        """Return the changes that other writers have stored after `revision`, in order. Return None
        if the whole state is to be loaded instead.
        """
        ...


class ChangeLog(Protocol):
    """The stored changes with their inverses, which `Store.begin` adds to. Each method raises
    Failed.
    """

    async def past_changes(self, number: int) -> Sequence[PastChange]:
        """Return the latest changes, the last one first."""
        ...

    async def changes_about(self, revision: int) -> Sequence[PastChange]:
        """Return a change, those that undo it, those that undo these, and so on; none if there is
        no such change.
        """
        ...

    async def inverse(self, revision: int) -> Sequence[Reversal] | None:
        """Return the inverse of a change; None if there is none."""
        ...


class TrialStore(Protocol):
    """The trial that goes on, durably. Each method raises Failed."""

    async def trial(self) -> ChangeTrial | None:
        """Return the trial that goes on, or None."""
        ...

    async def trial_state(self) -> DesiredState | None:
        """Return the state that its changes are taken back to; None without a trial."""
        ...

    async def begin_trial(self, begun: ChangeTrial, state: DesiredState) -> bool:
        """Store a trial. Return False, and store nothing, if there is one already. Raises
        WriteConflict if `state` is not the stored one.
        """
        ...

    async def end_trial(self) -> bool:
        """Delete the trial; what was changed stays. Return False if there is none."""
        ...


class MemberLink(Protocol):
    """A member's link to the others of its site. Each method raises Failed."""

    async def read(self, point: StatePoint | None = None) -> SiteReading:
        """Return what is known of all members now, with `point` in force here."""
        ...

    async def beat(
        self, point: StatePoint, role: str, blocked: tuple[str, ...] = ()
    ) -> SiteReading:
        """Say that this member lives and has `point` in force, but for targets that are `blocked`;
        return what `read` does.
        """
        ...

    async def join(self, point: StatePoint, role: str, attempt: int | None) -> int:
        """Become a member that every change waits for which is stored later. Return the revision of
        the last one that does not. Raises Failed if the site's history is not that of `point`.
        """
        ...

    async def acknowledge(
        self, point: StatePoint, blocked: tuple[str, ...], attempt: int | None
    ) -> None:
        """Say that `point` is in force here, but for targets that are `blocked`; and perhaps the
        change `attempt`, unless that is None.
        """
        ...

    async def announce(self, attempt: int) -> None:
        """Say that the change `attempt` may be in force here before it is stored."""
        ...

    async def fence_quiet(self, member: int, n: int) -> None:
        """Let no beat of `member` count that follows its beat `n`, until it joins again. Does
        nothing if it has beaten since.
        """
        ...

    async def fence_late(self, member: int, revision: int) -> None:
        """Let no further beat of `member` count until it joins again. Does nothing if it has
        `revision` in force.
        """
        ...

    async def open_gate(self) -> bool:
        """Say that this member lets clients through without a lease. Return False, and say nothing,
        if it is not the only one.
        """
        ...

    async def close_gate(self) -> None:
        """Say that this member lets no client through without a lease."""
        ...

    async def close(self) -> None:
        """Close the connections. The next call connects again."""
        ...

    async def prune(self) -> None:
        """Delete the part of the log that no member needs."""
        ...

    def hints(self) -> AsyncIterator[int]:
        """Yield the revision of each change soon after it, and 0 after an acknowledgement."""
        ...


class DurableFlag(Protocol):
    """A note that outlasts a restart and a loss of power."""

    def is_set(self) -> bool:
        """True if it is. Raises Failed."""
        ...

    def put(self, is_set: bool) -> None:
        """Set or clear the note, durably. Raises Failed."""
        ...


class SitePort(Protocol):
    """This box as a member of a site, for the ledger."""

    @property
    def is_leased(self) -> bool:
        """True if the plan is to be one that needs a lease. Once that changes, `Ledger.resync` is
        due.
        """
        ...

    @property
    def has_lease(self) -> bool:
        """True if clients may be let through, as far as the site decides."""
        ...

    def check(self) -> None:
        """Raise Failed if no change may be made."""
        ...

    async def announce(self) -> None:
        """Tell the other members that a change is made here: until `applied` or `taken_back` they
        do not rely on what is in force here. Raises Failed.
        """
        ...

    def applied(self, revision: int, blocked: tuple[str, ...] = ()) -> None:
        """Note that `revision` is stored and in force here, but for the targets `blocked`."""
        ...

    def taken_back(self) -> None:
        """Note that the announced change is not in force here: what was before it is."""
        ...

    async def everywhere(self, revision: int, *, is_new: bool) -> tuple[Sentence, ...]:
        """Return once every other member has `revision` in force or lets no client through, with
        sentences for the operator. Raises Unconfirmed if that cannot be found out; or Failed, if
        not `is_new`: then the change has stored nothing.
        """
        ...


class Archive(Protocol):
    """Whole states in files of their own. Each method raises Failed."""

    async def backup(self, path: Path) -> None:
        """Write a snapshot of the stored state to the file `path`; writes go on meanwhile."""
        ...

    async def read_backup(self, path: Path) -> DesiredState:
        """Return the state in such a file, including an older egressd's. The file is only read."""
        ...


class Configuration(Store, Archive, ChangeLog, TrialStore, Protocol):
    """The stored configuration: its state, its archive, its log of changes and its trial."""

    async def open(self) -> None:
        """Open it. Raises Failed, and BadDatabase if the stored data cannot be trusted."""
        ...

    async def close(self) -> None:
        """Close it."""
        ...

    async def has_returned(self) -> bool:
        """Look whether a database that was away at the start can be read now."""
        ...

    def problems(self) -> tuple[Sentence, ...]:
        """Return sentences about what an operator should mend."""
        ...


class Netd(Protocol):
    """The privileged process. Every method raises Failed if netd refuses or is away."""

    async def set_plan(self, plan: Plan) -> int:
        """Put a whole plan in force. Return the epoch that its whitelist was given: not the plan's
        own if that is 0, or belongs to another whitelist so far. 0 if netd does not say.
        """
        ...

    async def apply(self, change: Change, *, is_strict: bool = True) -> None:
        """Put a change in force, or leave everything as it was. Without `is_strict` an instance
        that will not start blocks its own clients, and the rest is in force.
        """
        ...

    async def status(self) -> Status:
        """Return the status of the device."""
        ...

    def lines(self) -> Mapping[str, LineStatus]:
        """Return the last reported status of each line, without a request. Empty while netd is
        away.
        """
        ...

    async def try_paths(self, paths: Sequence[NodePath]) -> Sequence[str]:
        """Return for each path why the engine refuses it; empty if it does not."""
        ...

    async def delays(self, probes: Sequence[Probe], url: str, timeout_ms: int) -> dict[str, Delay]:
        """Measure each probe."""
        ...

    async def send_alert(
        self, paths: Sequence[NodePath | KernelPath], url: str, title: str, body: str
    ) -> Sentence:
        """Send a message to a service by the first path that leads there, and by nothing else.
        Return the reason why it was not sent; empty if it was.
        """
        ...

    async def fetch_page(self, asked: FetchPage) -> PageFetched:
        """Fetch a page by the first path that leads there, and by nothing else."""
        ...

    async def locate(self, client: str) -> Located:
        """Return the current path of a client's address in the kernel's tables."""
        ...

    async def rotate(self, group: str, client: str | None) -> Rotated:
        """Give a client of a group, by its key, another member, or all of its clients."""
        ...

    async def connections(self, client: str) -> ConnectionsListed:
        """Return the live connections of a client's address."""
        ...

    async def close_connections(self, client: str, wanted: int | None) -> ConnectionsClosed:
        """Close a client's connection of that number, or all of them as far as one call does."""
        ...

    async def check_system(self) -> Sequence[MachineFinding]:
        """Return what kernel and system lack, which the api's unit does not see."""
        ...

    async def counters(self) -> dict[int, RuleCount]:
        """Return the traffic of each enabled rule, by its id, at most a second old."""
        ...


class HistoryPort(Protocol):
    """The durable storage of the history. Every method but `close` raises Failed if the disk
    fails. A damaged file is set aside, and the call is answered by a new one.
    """

    set_aside: int
    """Damaged files that were set aside since the start."""

    async def open(self) -> Sequence[HistoryKey]:
        """Return the keys that are stored."""
        ...

    async def starts(self, step: HistoryStep) -> Sequence[int]:
        """Return the starts of the slots that are stored, in the order in which they came."""
        ...

    async def growing(self, step: HistoryStep) -> Sequence[int]:
        """Return the starts of the stored slots that may lack what came after their last write."""
        ...

    async def slot(self, step: HistoryStep, start: int) -> Mapping[int, bytes]:
        """Return the blocks of a slot; empty if it is not stored."""
        ...

    async def write(
        self,
        slots: Sequence[TrafficSlot],
        keys: Sequence[HistoryKey],
        growing: Collection[SlotStart] = (),
        timelines: TimelineWrite = ...,
    ) -> None:
        """Store slots, keys and changes of state, in one write. `growing`: slots that more is added
        to, of which some may be stored.
        """
        ...

    async def delays(self, step: HistoryStep, starts: range) -> dict[int, bytes]:
        """Return the block of nodes' delays of each stored slot that begins in `starts`."""
        ...

    async def states(self) -> tuple[Sequence[StateChange], Sequence[Recording]]:
        """Return the last change of state of each part, and the recordings in their order."""
        ...

    async def changes(self, part: Part, number: int | None, start: int) -> Sequence[StateChange]:
        """Return the changes of one part, or of all of a kind, from a Unix time on, and the last
        one of each before, in the order in which they were recorded.
        """
        ...

    async def series(
        self, step: HistoryStep, by: By, number: int, starts: range
    ) -> dict[int, Exchanged]:
        """Return the bytes of a key, by the start of each slot that is stored."""
        ...

    async def sums(self, step: HistoryStep, by: By, starts: Sequence[int]) -> Sums:
        """Return the sums of all keys of a kind over these slots."""
        ...

    async def totals(
        self, step: HistoryStep, by: By, since: Mapping[int, int], starts: Sequence[int]
    ) -> dict[int, Exchanged]:
        """Return the sums of some keys of a kind, by their numbers, over those of the slots that
        begin from the time of each key in `since` on.
        """
        ...

    async def close(self) -> None:
        """Close. The object cannot be used afterwards."""
        ...


class ExitRecord(Protocol):
    """The last known exits, over restarts. It may lose them, and raises nothing."""

    async def load(self) -> Mapping[str, KnownExit]:
        """Return what was saved last, by the keys of targets; nothing if that cannot be read."""
        ...

    async def save(self, known: Mapping[str, KnownExit]) -> None:
        """Replace what is stored."""
        ...


class DeviceRecord(Protocol):
    """The durable storage of devices. Every method raises Failed if the disk fails. A damaged file
    is set aside, and a new one takes its place.
    """

    async def load(self) -> Sequence[LanDevice]:
        """Return the stored devices, in no order."""
        ...

    async def write(self, devices: Sequence[LanDevice], gone: Sequence[str]) -> None:
        """Put devices, and delete those with the hardware addresses `gone`; durably, and all of it
        or nothing.
        """
        ...


class VendorSource(Protocol):
    """The makers of network cards. It raises nothing."""

    async def names(self, macs: Collection[str]) -> Mapping[str, str]:
        """Return the maker of each hardware address that is known."""
        ...


class LeaseSource(Protocol):
    """The leases of DHCP servers on this machine. It raises nothing."""

    async def read(self) -> Sequence[DhcpLease]:
        """Return the leases that are new since the last call, or all of a file that has changed."""
        ...


class Clock(Protocol):
    """The current time, as a protocol so that tests can set it."""

    def __call__(self) -> str:
        """Return the time in UTC, as ``2026-11-20T22:58:40Z``."""
        ...
