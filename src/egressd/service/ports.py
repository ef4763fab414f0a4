"""The outside world that the use cases depend on, as protocols.

`app` passes the real implementations: the SQLite store and the client of netd's socket. Tests of
this room pass doubles that pass the same contract tests.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from egressd.model.desired import DesiredState, Edit
from egressd.model.findings import MachineFinding
from egressd.model.instances import NodePath
from egressd.model.messages import Delay, LineStatus, Located, Probe, RuleCount, Status
from egressd.model.plan import Change, Plan


class Store(Protocol):
    """The durable storage of the desired state. One writer at a time."""

    async def load(self) -> DesiredState:
        """Return the stored state. Raises Failed if the database cannot be trusted."""
        ...

    async def begin(self, edits: Sequence[Edit], revision: int) -> None:
        """Write `edits` inside an open transaction: durable only after `commit`."""
        ...

    async def commit(self) -> None:
        """Make the open transaction durable (fsync) before returning."""
        ...

    async def rollback(self) -> None:
        """Roll back the open transaction."""
        ...


class Archive(Protocol):
    """Whole states in files of their own. Each method raises Failed."""

    async def backup(self, path: Path) -> None:
        """Write a snapshot of the stored state to the file `path`; writes go on meanwhile."""
        ...

    async def read_backup(self, path: Path) -> DesiredState:
        """Return the state in such a file, including an older egressd's. The file is only read."""
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

    async def locate(self, client: str) -> Located:
        """Return the current path of a client's address in the kernel's tables."""
        ...

    async def check_system(self) -> Sequence[MachineFinding]:
        """Return what kernel and system lack, which the api's unit does not see."""
        ...

    async def counters(self) -> dict[int, RuleCount]:
        """Return the traffic of each enabled rule, by its id, at most a second old."""
        ...


class Clock(Protocol):
    """The current time, as a protocol so that tests can set it."""

    def __call__(self) -> str:
        """Return the time in UTC, as ``2026-11-20T22:58:40Z``."""
        ...
