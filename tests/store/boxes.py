"""Boxes that become one site by the command line, and the database of that site.

The boxes are folders of this machine, each with a machine id of its own, and reach PostgreSQL by
TCP with TLS, in a network namespace with nothing else in it.
"""

from __future__ import annotations

import asyncio
import itertools
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from egressd.app import config
from egressd.app.site import store_of
from egressd.model.desired import DesiredState
from tests.store.rig import EVERYTHING
from tests.support import postgres
from tests.support.netns import Namespace

CLIENT = Path(__file__).with_name("command_client.py")
ROOT = Path(__file__).resolve().parents[2]
MACHINE = 'mount --bind "$1" /etc/machine-id; shift; exec "$@"'
WAIT_S = 60.0
_NUMBERS = itertools.count(1)


@contextmanager
def command_server(folder: Path) -> Iterator[Path]:
    """Yield the socket of a server of ``egressd`` commands, which runs until the block ends."""
    path = folder / "commands"
    with subprocess.Popen(
        [sys.executable, "-m", "tests.store.command_server", str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    ) as serving:
        assert serving.stdout is not None
        assert serving.stdout.readline() == "serving\n"
        yield path
        assert serving.stdin is not None
        serving.stdin.close()


class Box:
    """A box: its folders, and its command line."""

    def __init__(self, folder: Path, network: Namespace, commands: Path, number: int) -> None:
        """`commands` is the socket of a server of commands."""
        folder.mkdir()
        self.folder = folder
        self.file = folder / "egressd.toml"
        self._network = network
        self._commands = commands
        self._machine = folder / "machine-id"
        self._machine.write_text(f"{number:032x}\n")
        self.configure()

    def configure(self, more: str = "", *, lan: str = "lan0") -> None:
        """Write its configuration file."""
        self.file.write_text(
            f'[api]\nuser = "root"\n[data]\ndir = "{self.folder}"\n'
            f'[lan]\ninterfaces = ["{lan}"]\n[wan]\ninterfaces = ["wan0"]\n{more}'
        )

    def clone(self, other: Box) -> None:
        """Take the machine id of another box."""
        self._machine.write_text(other._machine.read_text())

    @property
    def data(self) -> Path:
        return self.folder / "api"

    @property
    def settings(self) -> config.Config:
        return config.load(self.file)

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """Start ``egressd cluster`` with arguments."""
        entered = [
            # A shell that runs the tests in the background has them ignore SIGINT (POSIX sh, 2.11).
            "env",
            "--default-signal=INT",
            "nsenter",
            f"--net={self._network.path}",
            "unshare",
            "-m",
            "sh",
            "-c",
            MACHINE,
            "sh",
        ]
        client = [sys.executable, "-IS", str(CLIENT), str(self._commands)]
        command = ["cluster", *arguments, "--config", str(self.file)]
        return subprocess.Popen(
            [*entered, str(self._machine), *client, *command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *arguments: str, given: str = "") -> str:
        """Return what a command says that gets `given` on its standard input. Raises AssertionError
        with it if it fails.
        """
        running = self.start(*arguments)
        out, error = running.communicate(given)
        if running.returncode:
            raise AssertionError(f"{out}{error}")
        return out + error

    def refused(self, *arguments: str, given: str = "") -> str:
        """Return what a command says that fails."""
        with pytest.raises(AssertionError) as error:
            self.run(*arguments, given=given)
        return str(error.value)

    def files(self) -> dict[str, bytes]:
        """Return each of its files."""
        return {
            str(file.relative_to(self.folder)): file.read_bytes()
            for file in self.folder.rglob("*")
            if file.is_file() and not file.name.startswith("state.db-")
        }


class Rig:
    """PostgreSQL, a box that has made a site there, and one that has not."""

    def __init__(
        self, server: postgres.Server, folder: Path, network: Namespace, commands: Path
    ) -> None:
        self.server = server
        self.folder = folder
        self.network = network
        self._commands = commands
        self.a = Box(folder / "a", network, commands, next(_NUMBERS))

    def init(self) -> str:
        """Make the site, which has everything."""
        self.a.configure('[cluster]\nmember = "a"\n')
        local = ("--local", "--socket", str(self.server.folder), "--address", "127.0.0.1")
        said = self.a.run("init", *local, "--site", "home", "--write")
        asyncio.run(self._found())
        return said

    async def _found(self) -> None:
        store = store_of(self.a.settings)
        await store.open()
        await store.load()
        await store.begin(EVERYTHING, 1)
        await store.commit()
        await store.close()

    def box(self, name: str = "b") -> Box:
        """Return a box that has not joined."""
        number = next(_NUMBERS)
        made = Box(self.folder / f"box{number}", self.network, self._commands, number)
        made.configure(f'[cluster]\nmember = "{name}"\n')
        return made

    @contextmanager
    def invitation(self, *arguments: str) -> Iterator[tuple[str, subprocess.Popen[str]]]:
        """Yield a token, and the command that waits for the box."""
        inviting = self.a.start("invite", *arguments)
        assert inviting.stdout is not None
        try:
            token = inviting.stdout.readline().strip()
            assert token.startswith("egressd1-"), inviting.stderr
            yield token, inviting
        finally:
            if inviting.poll() is None:
                inviting.send_signal(signal.SIGINT)
            try:
                inviting.communicate(timeout=WAIT_S)
            finally:
                inviting.kill()

    def query(self, statement: str) -> list[list[str]]:
        """Ask the site's database as its owner."""
        return self.server.query(statement, database="egressd")

    def at_site(self) -> tuple[list[list[str]], list[list[str]]]:
        """Return the site's members, and the roles there are."""
        return (
            self.query("SELECT name, role_name, is_revoked, device FROM member ORDER BY name"),
            self.query("SELECT rolname, rolcanlogin FROM pg_roles ORDER BY rolname"),
        )


async def state_of(settings: config.Config) -> DesiredState:
    store = store_of(settings)
    await store.open()
    state = await store.load()
    problems = [*store.problems()]
    await store.close()
    assert not problems, problems
    return state


def joined(rig: Rig, name: str = "b") -> Box:
    """Return a box that has joined, and whose service has run once."""
    box = rig.box(name)
    with rig.invitation() as (token, inviting):
        box.run("join", "--write", given=token)
        assert inviting.wait(WAIT_S) == 0
    rig.network.run_async(state_of, box.settings)
    return box
