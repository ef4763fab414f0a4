"""Killed at any system call of a write, the store holds the state before or after it: promise P4.

Acknowledged changes are stored. The kernel survives here, as at ``kill -9``; the order of writes
and fsyncs that a power loss requires is SQLite's own (WAL, ``synchronous=FULL``).
"""

from __future__ import annotations

import os
import re
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from egressd.model.desired import DesiredState
from egressd.model.errors import Failed
from egressd.store import migrations
from egressd.store.api_token import ApiToken
from egressd.store.preparation import prepare
from tests.support.tracing import traced

if TYPE_CHECKING:
    from tests.store.rig import CrashServer, OpenDatabase

pytestmark = pytest.mark.slow


CHANGES = (
    "pwrite64,write,fsync,fdatasync,ftruncate,fallocate,openat,unlink,rename,mkdir,fchmod,fchown"
)
"""The calls that change files or order their changes: kills between two of them are equivalent."""


class Killer:
    """Runs a job repeatedly, killed before another of its system calls each time."""

    def __init__(self, server: CrashServer, work: Path) -> None:
        self._server = server
        self._work = work

    def rounds(
        self, job: str, template: Path | None, every: int = 1
    ) -> Iterator[tuple[Path, bool]]:
        """Yield the directory after each kill, and whether the job had been acknowledged.

        Of the writes, only one in `every` is killed: a large job appends many pages to the log in a
        row, which take effect all at once.
        """
        record = self._work / "calls"
        self._run(job, self._fresh(template), inject="", record=record)
        for call, number in calls_of(record.read_text()):
            if call == "pwrite64" and number % every:
                continue
            directory = self._fresh(template)
            inject = f"inject={call}:signal=SIGKILL:when={number}"
            acknowledged, status = self._run(job, directory, inject)
            assert os.WIFSIGNALED(status), (call, number)
            yield directory, acknowledged

    def _fresh(self, template: Path | None) -> Path:
        directory = self._work / "data"
        shutil.rmtree(directory, ignore_errors=True)
        if template is not None:
            shutil.copytree(template, directory)
        return directory

    def _run(
        self, job: str, directory: Path, inject: str, record: Path = Path(os.devnull)
    ) -> tuple[bool, int]:
        """Return whether the job was acknowledged, and the wait status of its process."""
        self._server.say(f"{job} {directory}")
        pid = self._server.hear_ready()
        with traced(pid, CHANGES, inject, record):
            self._server.say("go")
            said = self._server.hear()
            ended = self._server.hear() if said == "acknowledged" else said
        return said == "acknowledged", int(ended.removeprefix("ended "))


def calls_of(record: str) -> list[tuple[str, int]]:
    """Return the calls in strace's record, each with its number among its thread's of that name.

    strace counts for ``when`` in the same way.
    """
    made = re.findall(r"^(\d+) +(\w+)\(", record, re.MULTILINE)
    counted: Counter[tuple[str, str]] = Counter()
    points: dict[tuple[str, int], None] = {}
    for thread, call in made:
        counted[thread, call] += 1
        points[call, counted[thread, call]] = None
    return list(points)


@pytest.fixture
def killer(server: CrashServer, tmp_path: Path) -> Killer:
    (tmp_path / "work").mkdir()
    return Killer(server, tmp_path / "work")


async def test_a_killed_write_is_whole_or_absent(
    tmp_path: Path, opened: OpenDatabase, killer: Killer, states: list[DesiredState]
) -> None:
    outcomes = []
    for directory, acknowledged in killer.rounds("write", tmp_path / "data"):
        async with opened(directory) as database:
            found = await database.load()
            assert found in states[2:]
            assert found == states[3] or not acknowledged
            outcomes.append(found.revision)
            # It can be written to again.
            await database.begin([], found.revision + 1)
            await database.commit()
    assert len(outcomes) > 15
    assert outcomes == sorted(outcomes)
    assert set(outcomes) == {2, 3}


async def test_a_killed_first_start_leaves_none_or_a_whole_database(
    opened: OpenDatabase, killer: Killer
) -> None:
    rounds = 0
    for directory, acknowledged in killer.rounds("start", None, every=5):
        assert not acknowledged or (directory / "state.db").exists()
        async with opened(directory) as database:
            assert await database.load() == DesiredState()
        rounds += 1
    assert rounds > 30


async def test_a_killed_upgrade_is_whole_or_absent(
    tmp_path: Path, opened: OpenDatabase, killer: Killer, states: list[DesiredState]
) -> None:
    scripts = tmp_path / "work" / "scripts"
    shutil.copytree(Path(migrations.__file__).parent, scripts)
    (scripts / "versions" / "v9998_next.py").write_text(
        f'from alembic import op\nimport sqlalchemy as sa\nrevision = "9998"\n'
        f'down_revision = "{prepare().newest}"\n'
        "def upgrade():\n"
        '    with op.batch_alter_table("rules", recreate="always") as batch:\n'
        '        batch.add_column(sa.Column("x", sa.Text, server_default="", nullable=False))\n'
    )
    refused = 0
    for directory, acknowledged in killer.rounds("upgrade", tmp_path / "data", every=5):
        try:
            async with opened(directory) as database:
                assert await database.load() == states[2]
                assert not acknowledged
        except Failed as too_old:
            refused += "newer egressd" in str(too_old)
    assert refused >= 1


async def test_a_killed_restore_is_whole_or_absent(
    tmp_path: Path, opened: OpenDatabase, killer: Killer, states: list[DesiredState]
) -> None:
    shutil.copy(tmp_path / "backup", tmp_path / "work" / "backup")
    seen = set()
    for directory, acknowledged in killer.rounds("restore", tmp_path / "data"):
        async with opened(directory) as database:
            found = await database.load()
            assert found == states[2] or (found.revision == 3 and found.rules == states[1].rules)
            assert not acknowledged or found.revision == 3
            seen.add(found.revision)
    assert seen == {2, 3}


async def test_a_killed_reset_leaves_the_old_token_or_the_new(
    tmp_path: Path, killer: Killer
) -> None:
    (tmp_path / "data").mkdir()
    token = ApiToken(tmp_path / "data")
    token.ensure()
    first, changed = token.token(), []
    for directory, acknowledged in killer.rounds("reset", tmp_path / "data"):
        found = ApiToken(directory).token()
        assert len(found) == len(first)
        changed.append(found != first)
        assert changed[-1] or not acknowledged
    assert changed == sorted(changed)
    assert set(changed) == {False, True}
