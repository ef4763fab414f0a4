"""A Debian machine with egressd in it: commands, and the API."""

from __future__ import annotations

import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Final, Self

from egressd.model.errors import Failed
from egressd_lab.device import API_PORT, Api
from egressd_lab.host import Host

ENVIRONMENT: Final[Mapping[str, str]] = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "LC_ALL": "C.UTF-8",
    "HOME": "/root",
    "DEBIAN_FRONTEND": "noninteractive",
}
"""The environment of commands in a machine."""

CONFIGURATION: Final = f"""\
[api]
listen = "0.0.0.0:{API_PORT}"
[lan]
interfaces = ["lan0"]
[engine]
workers = 1
"""
"""The operator's configuration of a machine in a lab."""


class Box(ABC):
    """One machine. A context manager: off, and all of it removed, on exit."""

    START_S = 120.0
    """Seconds from a start of egressd until it is healthy, on a busy machine."""

    def __init__(self, suite: str, caller: Host) -> None:
        self.suite = suite
        self._caller = caller
        """The host that calls the API."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.power_off()

    @abstractmethod
    def boot(self) -> None:
        """Boot, and wait until commands can run. Raises Failed."""

    @abstractmethod
    def power_off(self) -> None:
        """Cut the power: nothing gets to end by itself."""

    @abstractmethod
    def is_on(self) -> bool:
        """Return False if the machine went off."""

    @abstractmethod
    def console(self) -> str:
        """Return the end of what was written to the console."""

    @abstractmethod
    def try_(self, *argv: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        """Run a command; its output has errors in it."""

    def wait(self, check: Callable[[], bool], what: str, seconds: float) -> None:
        """Wait until `check` holds. Raises Failed."""
        deadline = time.monotonic() + seconds
        while True:
            with suppress(OSError):
                if check():
                    return
            if not self.is_on():
                raise Failed(what, f"it went off: {self.console()}")
            if time.monotonic() > deadline:
                raise Failed(what, f"not within {seconds:.0f} s: {self.console()}")
            time.sleep(0.1)

    # --- Commands in it. ---

    def run(self, *argv: str, stdin: str = "", check: bool = True) -> str:
        """Run a command and return its output. Raises Failed with it if `check`."""
        done = self.try_(*argv, stdin=stdin)
        if check and done.returncode:
            raise Failed(f"run `{' '.join(argv)}`", done.stdout)
        return done.stdout

    def write(self, path: str, text: str) -> None:
        """Write a file, with the folders above it."""
        self.run("sh", "-c", f'mkdir -p "$(dirname {path})"; cat > {path}', stdin=text)

    def exists(self, path: str) -> bool:
        """True if there is such a file, or a link without a target."""
        return self.try_("sh", "-c", f'[ -e "{path}" ] || [ -L "{path}" ]').returncode == 0

    def apt(self, *arguments: str) -> str:
        """Run apt-get without questions."""
        return self.run("apt-get", "--yes", "--quiet", *arguments)

    def add_repository(self) -> None:
        """Configure the repository, and read it."""
        file = "/etc/apt/sources.list.d/egressd.list"
        self.write(file, f"deb [trusted=yes] file:/srv/apt {self.suite} main\n")
        self.refresh()

    def refresh(self) -> None:
        """Read the repository's indexes; those of Debian are there."""
        self.apt(
            "update",
            "-oDir::Etc::sourcelist=/etc/apt/sources.list.d/egressd.list",
            "-oDir::Etc::sourceparts=-",
            "-oAPT::Get::List-Cleanup=0",
        )

    def state(self, unit: str) -> str:
        """Return the state of a unit: ``active``, ``inactive``, …"""
        return self.run("systemctl", "show", "-P", "ActiveState", unit).strip()

    # --- egressd in it. ---

    def wait_healthy(self) -> None:
        """Wait until ``/ops/health`` answers 200. Raises Failed with the log if it does not."""
        api = Api(self._caller, "")

        def is_healthy() -> bool:
            try:
                return api.ask("GET", "/ops/health", timeout=5).status == 200
            except Failed:
                return False

        try:
            self.wait(is_healthy, "start egressd", self.START_S)
        except Failed as error:
            raise Failed("start egressd", f"{error}\n{self.log()}") from error

    def log(self) -> str:
        """Return the end of the log of egressd's units."""
        return self.run("journalctl", "--no-pager", "--lines=60", "--unit=egressd-*", check=False)

    def api(self) -> Api:
        """Return the API, with the token that the machine's own command shows."""
        return Api(self._caller, self.run("egressd", "token", "show").strip())

    def pids(self, part: str) -> list[int]:
        """Return the processes with `part` in their command line, as numbered inside."""
        return [int(pid) for pid in self.run("pgrep", "-f", part, check=False).split()]
