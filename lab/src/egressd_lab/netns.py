"""Network namespaces: named by lab, made, found again from the kernel's state, and removed.

A namespace is ``egl-<lab>-<role>``. Everything a lab owns is found by that prefix: interfaces exist
only inside its namespaces, processes are found by the namespace they are in, files lie under
`RUN_DIR`/<lab> and /etc/netns/<namespace> (bound over /etc by ``ip netns exec``, ip-netns(8)). So
removal needs no record of the created parts.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from egressd.model.errors import Failed

PREFIX: Final = "egl-"
NETNS_DIR: Final = Path("/run/netns")
ETC_DIR: Final = Path("/etc/netns")
RUN_DIR: Final = Path("/run/egressd-lab")


def namespace(lab: str, role: str) -> str:
    """Return the name of a lab's namespace for one role."""
    return f"{PREFIX}{lab}-{role}"


def labs() -> dict[str, list[str]]:
    """Return the roles of every lab that has namespaces on this machine, by lab name."""
    found: dict[str, list[str]] = {}
    if not NETNS_DIR.is_dir():
        return found
    for entry in sorted(NETNS_DIR.iterdir()):
        if entry.name.startswith(PREFIX):
            lab, _, role = entry.name.removeprefix(PREFIX).partition("-")
            found.setdefault(lab, []).append(role)
    return found


def run_ip(*args: str, batch: Iterable[str] | None = None) -> None:
    """Run ``ip`` with `args`, or with the lines of `batch` on its standard input.

    Raises Failed with the error message of ``ip``.
    """
    text = None if batch is None else "".join(f"{line}\n" for line in batch)
    argv = ["ip", *args] if text is None else ["ip", *args, "-batch", "-"]
    done = subprocess.run(argv, input=text, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        shown = " ".join(argv)
        raise Failed(f"run `{shown}`", _first_fault(done.stderr, text or ""))


def _first_fault(stderr: str, batch: str) -> str:
    """Return the message of `ip`, with the batch line that it stopped at (``Command
    failed -:N``).
    """
    reason = stderr.strip()
    marker = "Command failed -:"
    if marker in reason:
        number = int(reason.partition(marker)[2].split()[0])
        return f"{reason.partition(marker)[0].strip()}: {batch.splitlines()[number - 1]}"
    return reason


def exec_argv(name: str, argv: Sequence[str]) -> list[str]:
    """Return the command that becomes `argv` inside the namespace, under the same process id."""
    return ["ip", "netns", "exec", name, *argv]


def processes(names: Iterable[str]) -> list[int]:
    """Return the ids of all processes inside the namespaces, this one excepted."""
    inodes = set()
    for name in names:
        try:
            inodes.add((NETNS_DIR / name).stat().st_ino)
        except FileNotFoundError:
            continue
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            link = (entry / "ns" / "net").readlink().name  # net:[4026531840]
        except OSError:
            continue  # it ended, or is a zombie
        if link.startswith("net:[") and int(link[5:-1]) in inodes:
            found.append(int(entry.name))
    return found


def remove_lab(lab: str) -> None:
    """End every process in the lab's namespaces, then remove namespaces and files.

    Safe to repeat, to call for a lab that was built only in part, and to call in two processes at
    once, as when two runs of tests find the same abandoned lab.
    """
    names = [namespace(lab, role) for role in labs().get(lab, [])]
    _end(names)
    for name in names:
        try:
            run_ip("netns", "del", name)
        except Failed:
            if (NETNS_DIR / name).exists():
                raise
    for folder in (*ETC_DIR.glob(f"{PREFIX}{lab}-*"), RUN_DIR / lab):
        shutil.rmtree(folder, ignore_errors=True)
    for parent in (ETC_DIR, RUN_DIR):
        try:
            parent.rmdir()
        except OSError:
            continue  # absent, or it has other files


def _end(names: list[str]) -> None:
    """Send SIGKILL until no process is left: a process may fork while the list is read."""
    deadline = time.monotonic() + 10
    while left := processes(names):
        if time.monotonic() > deadline:
            raise Failed("end the lab's processes", f"still running: {left}")
        for pid in left:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        time.sleep(0.01)
