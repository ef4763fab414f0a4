"""What the use cases need of the outside world, as protocols.

`app` hands in the real ones: the SQLite store and the client of netd's socket. Tests of
this room hand in doubles that pass the same contract tests.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from egressd.model.desired import DesiredState, Edit
from egressd.model.instances import NodePath
from egressd.model.messages import Delay, LineStatus, Located, Probe, RuleCount, Status
from egressd.model.plan import Change, Plan


class Store(Protocol):
    """The durable home of the desired state. One writer at a time."""

    async def load(self) -> DesiredState:
        """The state as stored. Raises Failed when the database cannot be trusted."""
        ...

    async def begin(self, edits: Sequence[Edit], revision: int) -> None:
        """Write `edits` inside an open transaction: durable only after `commit`."""
        ...

    async def commit(self) -> None:
        """Make the open transaction durable (fsync) before returning."""
        ...

    async def rollback(self) -> None:
        """Forget the open transaction."""
        ...


class Archive(Protocol):
    """Whole states in files of their own. Each method raises Failed."""

    async def backup(self, path: Path) -> None:
        """Write the state as stored at one moment to the file `path`; writes go on meanwhile."""
        ...

    async def read_backup(self, path: Path) -> DesiredState:
        """The state in such a file, an older egressd's too. The file is only read."""
        ...


class Netd(Protocol):
    """The privileged process. Every method raises Failed when netd refuses or is away."""

    async def set_plan(self, plan: Plan) -> None:
        """Put a whole plan in force."""
        ...

    async def apply(self, change: Change) -> None:
        """Put a change in force, or leave everything as it was."""
        ...

    async def status(self) -> Status:
        """How the device is doing."""
        ...

    def lines(self) -> Mapping[str, LineStatus]:
        """How each line is doing, without asking: as it was told last. Empty when it is away."""
        ...

    async def try_paths(self, paths: Sequence[NodePath]) -> Sequence[str]:
        """For each path, why the engine refuses it; empty when it does not."""
        ...

    async def delays(self, probes: Sequence[Probe], url: str, timeout_ms: int) -> dict[str, Delay]:
        """Measure each probe."""
        ...

    async def locate(self, client: str) -> Located:
        """Where the kernel's tables send a client's address."""
        ...

    async def counters(self) -> dict[int, RuleCount]:
        """The traffic of each enabled rule, by its id, at most a second ago."""
        ...


class Clock(Protocol):
    """The time, so that tests can say what it is."""

    def __call__(self) -> str:
        """Now, in UTC, as ``2026-11-20T22:58:40Z``."""
        ...
