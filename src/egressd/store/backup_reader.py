"""The process that reads a backup, isolated because the file is of unknown origin.

`read_apart` starts it and gives it the open file; `main` is what runs there. It can be ended, and
the kernel bounds its memory and processor time (setrlimit(2)), so a file that makes SQLite or
Python busy costs the service nothing but a refusal. It answers with one `ReaderAnswer`.
"""

from __future__ import annotations

import os
import resource
import signal
import stat
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Final

import msgspec

from egressd.model.bounds import BACKUP_MAX
from egressd.model.desired import DesiredState
from egressd.model.errors import Failed
from egressd.store.backup_file import Content, read_content
from egressd.store.connection import BadDatabase, reported
from egressd.store.own_process import ENVIRONMENT, command
from egressd.store.preparation import Revisions

_PROCESSOR_S: Final = 30
"""Seconds of processor time. The largest legitimate backups take a tenth of it."""
_PATIENCE_S: Final = 120.0
"""Seconds until it is killed: other processes may be using the processor."""
_MEMORY_MAX: Final = 1024 * 1024 * 1024
"""Bytes of address space, the interpreter's own 150 MB included."""
_ANSWER_MAX: Final = 2 * BACKUP_MAX
"""Bytes of an answer. It is usually shorter than the file."""
_LIMITS: Final = {
    resource.RLIMIT_AS: _MEMORY_MAX,
    resource.RLIMIT_CPU: _PROCESSOR_S,
    resource.RLIMIT_FSIZE: _ANSWER_MAX,
    resource.RLIMIT_CORE: 0,
}
_NOBODY: Final = 65534
"""User and group id without privileges, which own no files."""


class ReaderAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The result of reading a backup: its content, or the reason why there is none."""

    content: Content | None = None
    problem: str = ""


def read_apart(path: Path) -> DesiredState:
    """Return the state in the backup `path`; blocks. Raises BadDatabase, and Failed if the file
    cannot be opened or the process cannot be started.
    """
    action = f"read the backup {path}"
    with reported(action), path.open("rb") as file, _answer_file() as answer:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise BadDatabase(action, "it is no file")
        _run(action, file, answer)
        answer.seek(0)
        told = msgspec.msgpack.decode(answer.read(), type=ReaderAnswer)
    if told.content is None:
        raise BadDatabase(action, told.problem)
    return told.content.state()


@contextmanager
def _answer_file() -> Iterator[IO[bytes]]:
    """Yield a file in memory. Unlike a pipe, its size is bounded by a limit of the writing
    process.
    """
    with os.fdopen(os.memfd_create("backup"), "w+b") as file:
        yield file


def _run(action: str, file: IO[bytes], answer: IO[bytes]) -> None:
    argv = command(__name__)
    try:
        ended = subprocess.run(
            argv,
            stdin=file,
            stdout=answer,
            env=ENVIRONMENT,
            timeout=_PATIENCE_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise BadDatabase(action, f"reading it took over {_PATIENCE_S:.0f} s") from None
    match ended.returncode:
        case 0:
            return
        case code if code in (-signal.SIGXCPU, -signal.SIGKILL):
            cause = f"reading it took over {_PROCESSOR_S} s of processor time"
            raise BadDatabase(action, cause)
        case code if code < 0:
            raise BadDatabase(action, f"reading it ended with signal {-code}")
        case code:
            raise Failed(action, f"the process that reads it ended with code {code}")


# --- In that process. ---------------------------------------------------------------------


def main() -> None:
    """Read the backup at standard input, and answer at standard output."""
    from egressd.store.migrating import prepare_migrations  # the caller needs none of it

    # Loads all modules too: below there may be no permission to load more.
    migrations = prepare_migrations()
    _give_up()
    encoded = msgspec.msgpack.encode(_answer(migrations))
    if len(encoded) > _ANSWER_MAX:
        encoded = msgspec.msgpack.encode(
            ReaderAnswer(problem=f"it holds more than {_ANSWER_MAX} bytes")
        )
    with open(1, "wb", closefd=False) as answer:
        answer.write(encoded)


def _give_up() -> None:
    """Limit this process's resources, and drop root's rights if a command of root's started it."""
    for limit, most in _LIMITS.items():
        resource.setrlimit(limit, (most, most))
    if os.geteuid() == 0:
        os.setgroups([])
        os.setresgid(_NOBODY, _NOBODY, _NOBODY)
        os.setresuid(_NOBODY, _NOBODY, _NOBODY)


def _answer(migrations: Revisions) -> ReaderAnswer:
    try:
        with open(0, "rb", closefd=False) as file, reported("read the backup"):
            content = file.read(BACKUP_MAX + 1)
            return ReaderAnswer(content=Content.of(read_content(content, migrations, _PROCESSOR_S)))
    except Failed as error:
        return ReaderAnswer(problem=error.cause)
    except MemoryError:
        return ReaderAnswer(problem=f"reading it takes over {_MEMORY_MAX} bytes of memory")
    except RecursionError:
        return ReaderAnswer(problem="it is damaged: a value is nested too deep")
