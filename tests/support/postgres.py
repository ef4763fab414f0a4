"""Debian's PostgreSQL, with data of the test's own: on a socket in a folder, and on no port."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.support.device import eventually

PROGRAMS = sorted(Path("/usr/lib/postgresql").glob("*/bin"))
"""Folders of the installed versions' programs, the newest last."""
USER = "postgres"
OWNER = "postgres"
"""The role that owns everything."""
MEMBER = "egressd"
START_S = 60.0
_ROWS = ("-qtAX", "-F", "\t", "-v", "ON_ERROR_STOP=1")
"""Options of psql(1): rows alone, and the exit status tells of errors."""
"""The role of a member that has no name of its own."""


class Server:
    """A server. A program that reaches its socket is the role that it names."""

    def __init__(self, folder: Path, network: str = "") -> None:
        self.folder = folder
        self._network = network
        """The path of the network namespace that it runs in; empty for this process's own."""
        self.environment: Mapping[str, str] = {}
        """Variables that it has in addition from its next start on."""
        self._account = pwd.getpwnam(USER)
        folder.chmod(0o755)  # a member has another user
        os.chown(folder, self._account.pw_uid, self._account.pw_gid)
        self._process: subprocess.Popen[bytes] | None = None
        self._run("initdb", "-D", self._data, "-A", "trust", "-U", OWNER, "--no-sync", "-E", "UTF8")

    @property
    def _data(self) -> str:
        return str(self.folder / "data")

    def conninfo(self, role: str = MEMBER, database: str = "postgres") -> str:
        """Return the connection string of a role."""
        return f"host={self.folder} user={role} dbname={database}"

    def start(self, *settings: str) -> None:
        """Start it unless it runs, with ``name=value`` in addition, and wait until it answers."""
        if self._process is not None:
            return
        given = [f"unix_socket_directories={self.folder}", "listen_addresses=", *settings]
        argv = [
            str(PROGRAMS[-1] / "postgres"),
            "-D",
            self._data,
            *(word for each in given for word in ("-c", each)),
        ]
        entered = ("nsenter", f"--net={self._network}") if self._network else ()
        # As the server's own user: libfaketime's files would be root's.
        environment = ("env", *(f"{name}={value}" for name, value in self.environment.items()))
        ids = (f"--reuid={self._account.pw_uid}", f"--regid={self._account.pw_gid}")
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [*entered, "setpriv", *ids, "--clear-groups", *environment, *argv],
                stdout=log,
                stderr=log,
                cwd="/",
            )
        eventually(self._answers, START_S)

    def kill(self) -> None:
        """End it as a power loss would, its processes included."""
        self._end(signal.SIGQUIT)  # "immediate shutdown": no checkpoint, so it recovers at start

    def stop(self) -> None:
        """End it, and the connections to it."""
        self._end(signal.SIGINT)

    @contextmanager
    def configured(self, name: str, value: str) -> Iterator[None]:
        """Have a setting of the running server be `value` for the block."""
        self._set(f"SET {name} = '{value}'")
        try:
            yield
        finally:
            self._set(f"RESET {name}")

    def _set(self, change: str) -> None:
        for statement in (f"ALTER SYSTEM {change}", "SELECT pg_reload_conf()"):
            self.query(statement)

    def query(
        self, statement: str, role: str = OWNER, database: str = "postgres"
    ) -> list[list[str]]:
        """Return the rows of a statement's result, as texts."""
        done = subprocess.run(
            [PROGRAMS[-1] / "psql", *_ROWS, "-d", self.conninfo(role, database), "-c", statement],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise AssertionError(done.stderr.strip())
        return [line.split("\t") for line in done.stdout.splitlines()]

    def _answers(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, (self.folder / "log").read_text()
        probe = [str(PROGRAMS[-1] / "pg_isready"), "-q", "-h", str(self.folder)]
        return subprocess.run(probe, check=False).returncode == 0

    def _end(self, number: int) -> None:
        if self._process is not None:
            self._process.send_signal(number)
            self._process.wait()
            self._process = None

    def _run(self, program: str, *arguments: str) -> None:
        subprocess.run(
            [str(PROGRAMS[-1] / program), *arguments],
            user=self._account.pw_uid,
            group=self._account.pw_gid,
            extra_groups=[],
            check=True,
            stdout=subprocess.DEVNULL,
            cwd="/",
        )


@contextmanager
def server(network: str = "", *settings: str) -> Iterator[Server]:
    """Run a server in a folder of its own, in memory if possible, until the block ends."""
    memory = Path("/dev/shm")
    folder = Path(tempfile.mkdtemp(prefix="egressd-pg-", dir=memory if memory.is_dir() else None))
    running = Server(folder, network)
    try:
        running.start(*settings)
        yield running
    finally:
        running.kill()
        shutil.rmtree(folder)
