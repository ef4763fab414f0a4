"""Forks a child for each line of standard input, which does one job on a store and ends.

Run by ``test_crash.py`` and ``test_disk.py``, which trace the child. A line is ``<job>
<directory>``; the output is the lines ``ready <pid>``, the child's own lines, and ``ended <wait
status>``. The child continues after ``ready`` at the next line.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from unittest.mock import patch

from egressd.model.desired import Edit
from egressd.model.errors import Failed
from egressd.model.nouns import Rule
from egressd.store.api_token import ApiToken
from egressd.store.database import Database
from egressd.store.migrating import Migrations
from egressd.store.preparation import prepare


def say(text: str) -> None:
    os.write(1, f"{text}\n".encode())


def hear() -> str:
    # Unbuffered: the child reads its share of the same stream.
    return os.read(0, 4096).decode().strip()


def wait_for_tracer() -> None:
    say(f"ready {os.getpid()}")
    hear()


def edits(revision: int) -> list[Edit]:
    """Revision 1 has rules 1 to 300; each later one changes one, removes one and adds one."""
    if revision == 1:
        return [Edit("rules", i, rule(i, revision)) for i in range(1, 301)]
    return [
        Edit("rules", 1, rule(1, revision)),
        Edit("rules", revision, None),
        Edit("rules", 300 + revision, rule(300 + revision, revision)),
    ]


def rule(key: int, revision: int) -> Rule:
    return Rule(id=key, ip=f"10.0.{key >> 8}.{key & 255}/32", target_node=f"node {revision}")


async def commit(database: Database, revision: int) -> None:
    await database.begin(edits(revision), revision)
    await database.commit()


async def write(directory: Path) -> None:
    """Commit one revision."""
    database = Database(directory)
    await database.open()
    revision = (await database.load()).revision + 1
    wait_for_tracer()
    await commit(database, revision)
    say("acknowledged")
    await database.close()


async def start(directory: Path) -> None:
    """Open the database: created, or upgraded, if necessary."""
    wait_for_tracer()
    database = Database(directory)
    await database.open()
    say("acknowledged")
    await database.close()


async def upgrade(directory: Path) -> None:
    """Open it with the migrations of a newer egressd."""
    migrations = Migrations(directory.parent / "scripts")
    with patch("egressd.store.database.prepare", lambda: migrations):
        await start(directory)


async def restore(directory: Path) -> None:
    """Restore a backup."""
    database = Database(directory)
    await database.open()
    wanted = await database.read_backup(directory.parent / "backup")
    wait_for_tracer()
    await database.restore(wanted)
    say("acknowledged")
    await database.close()


async def reset(directory: Path) -> None:
    """Replace the API token."""
    wait_for_tracer()
    ApiToken(directory).reset()
    say("acknowledged")


async def endure(directory: Path) -> None:
    """Try one revision while the disk fails, then again once the disk works."""
    database = Database(directory)
    await database.open()
    before = await database.load()
    revision = before.revision + 1
    wait_for_tracer()
    try:
        await commit(database, revision)
    except Failed as error:
        say(f"failed {error}")
    else:
        say("acknowledged")
    wait_for_tracer()
    assert await database.load() == before
    await commit(database, revision)
    assert await database.load() == before.with_edits(edits(revision), revision)
    await database.close()
    say("recovered")


JOBS: dict[str, Callable[[Path], Awaitable[None]]] = {
    job.__name__: job for job in (write, start, upgrade, restore, reset, endure)
}


def main() -> None:
    prepare()
    say("serving")
    while line := hear():
        what, directory = line.split()
        child = os.fork()
        if child == 0:
            asyncio.run(JOBS[what](Path(directory)))  # type: ignore[arg-type]
            sys.stdout.flush()
            os._exit(0)
        _, status = os.waitpid(child, 0)
        say(f"ended {status}")


if __name__ == "__main__":
    main()
