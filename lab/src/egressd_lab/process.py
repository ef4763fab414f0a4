"""Programs inside namespaces, each started from an argv list and ended by its own id."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from egressd.model.errors import Failed
from egressd_lab import netns

PACKAGES: Final[Mapping[str, str]] = {
    "ip": "iproute2",
    "sysctl": "procps",
    "nft": "nftables",
    "microsocks": "microsocks",
    "danted": "dante-server",
    "tinyproxy": "tinyproxy-bin",
    "ss-server": "shadowsocks-libev",
    "obfs-server": "simple-obfs",
    "ss-v2ray-plugin": "shadowsocks-v2ray-plugin",
    "v2ray": "v2ray",
    "sh": "dash",
    "/usr/sbin/sshd": "openssh-server",
    "wg": "wireguard-tools",
    "xl2tpd": "xl2tpd",
    "pppd": "ppp",
}
"""The Debian package of each program that a lab runs. Debian 13 has no ``dante-server``,
``simple-obfs`` and ``shadowsocks-v2ray-plugin``: see `egressd_lab.nodes`.
"""

STOP_SECONDS: Final = 10.0
_LOG_SHOWN: Final = 2_000
_PAGE: Final = os.sysconf("SC_PAGE_SIZE")


def require(*programs: str) -> None:
    """Raise Failed with the Debian package of every missing program."""
    missing = [p for p in programs if not is_installed(p)]
    if missing:
        packages = " ".join(sorted({PACKAGES.get(p, p) for p in missing}))
        raise Failed("build the lab", f"{', '.join(missing)} not found: apt-get install {packages}")


def is_installed(program: str) -> bool:
    """True if a program of that name can be started."""
    return shutil.which(program, path=_search_path()) is not None


def _search_path() -> str:
    """Return PATH with Debian's folders for daemons."""
    return os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin"])


class Program:
    """A program running in a namespace, in a process group of its own; output to a file."""

    def __init__(
        self,
        namespace: str,
        argv: Sequence[str],
        log: Path,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.namespace = namespace
        self.argv = tuple(argv)
        self.log = log
        self._environment = {**os.environ, "PATH": _search_path(), **(environment or {})}
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """The process id. Raises Failed if the program has not been started."""
        if self._process is None:
            raise Failed(f"find {self.argv[0]}", "it has not been started")
        return self._process.pid

    @property
    def running(self) -> bool:
        """True if it has been started and has not ended."""
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start it, unless it runs already."""
        if self.running:
            return
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                netns.exec_argv(self.namespace, self.argv),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self._environment,
                start_new_session=True,
            )

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to it and to every process of its group; do nothing if it has ended."""
        if self.running:
            os.killpg(self.pid, number)

    def kill(self) -> None:
        """Send SIGKILL, and wait until no process of its group runs any more."""
        if self._process is None:
            return
        self.signal(signal.SIGKILL)
        self._process.wait()
        while _group_runs(self._process.pid):
            time.sleep(0.002)

    def stop(self, seconds: float = STOP_SECONDS) -> float:
        """Send SIGTERM, wait, and return the seconds that this took. Raises Failed if it had to be
        killed.
        """
        if self._process is None:
            return 0.0
        begun = time.monotonic()
        if self.running:
            self._process.terminate()
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired as error:
            self.kill()
            raise Failed(
                f"stop {self.argv[0]}", f"it ran on {seconds:g} s after SIGTERM"
            ) from error
        return time.monotonic() - begun

    def tail(self) -> str:
        """Return the end of its output."""
        if not self.log.exists():
            return ""
        return self.log.read_bytes()[-_LOG_SHOWN:].decode("utf-8", "replace").strip()


def resident(pid: int) -> int:
    """Return the memory that a process holds, in bytes; 0 if it has ended (proc(5), statm)."""
    with suppress(OSError):
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE
    return 0


def _group_runs(group: int) -> bool:
    """True if a process of the group has not ended yet; zombies have (proc(5), stat)."""
    for file in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, member_of = file.read_text().rpartition(")")[2].split()[:3]
        except OSError:
            continue
        if int(member_of) == group and state not in "ZX":
            return True
    return False
