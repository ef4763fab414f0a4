"""One netd at a time: for a run directory, and in a network namespace."""

from __future__ import annotations

import asyncio
import fcntl
import os
import signal
import socket
import sys
import time
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from egressd.app import single_netd
from egressd.model.errors import Failed
from egressd.netd.kernel.nft import Nft
from egressd.netd.system import processes
from tests.support.device import eventually
from tests.support.netns import Namespace

pytestmark = pytest.mark.lab


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(single_netd, "_PREDECESSOR_S", 0.5)


async def hold(folder: Path, seconds: float) -> str:
    """Run as netd for `seconds`. Return the reason if it could not begin, else an empty string."""
    nft = Nft()
    try:
        held = await single_netd.be_the_only_one(folder, nft)
    except Failed as error:
        return error.cause
    folder.with_suffix(".held").touch()
    await asyncio.sleep(seconds)
    held.close()
    nft.close()
    return ""


def until_held(folder: Path) -> None:
    eventually(folder.with_suffix(".held").exists)


def test_one_netd_runs_in_a_network_namespace(tmp_path: Path) -> None:
    # Found by an audit: each undid the other's work, endlessly.
    first, second = tmp_path / "first", tmp_path / "second"
    with Namespace() as network, Namespace() as other_network:
        network.start_async(hold, first, 60)
        until_held(first)
        assert (
            network.run_async(hold, second, 0) == "another egressd runs in this network namespace"
        )
        assert other_network.run_async(hold, second, 0) == ""


def test_one_netd_runs_with_a_run_directory(tmp_path: Path) -> None:
    folder = tmp_path / "netd"
    with Namespace() as network, Namespace() as other_network:
        network.start_async(hold, folder, 60)
        until_held(folder)
        assert other_network.run_async(hold, folder, 0) == f"another one works with {folder}"


def test_an_unprivileged_user_cannot_block_the_start() -> None:
    """A user without rights locks all files of an earlier netd, and takes all of its names."""
    with TemporaryDirectory() as name, Namespace() as network:
        run_dir = Path(name)
        run_dir.chmod(0o755)
        earlier = network.start_async(hold, run_dir / "netd", 60)
        until_held(run_dir / "netd")
        names = network.run(abstract_names)
        earlier.kill()
        (run_dir / "taken").touch()
        (run_dir / "taken").chmod(0o666)
        taker = network.start(take_all, run_dir, names)
        eventually(lambda: (run_dir / "taken").read_text() != "")
        assert network.run_async(hold, run_dir / "netd", 0) == ""
        taker.kill()


def abstract_names() -> list[str]:
    """Return the names of this namespace's Unix sockets without a file (proc_pid_net(5))."""
    lines = Path("/proc/net/unix").read_text().splitlines()
    return [line.partition("@")[2] for line in lines if "@" in line]


def take_all(run_dir: Path, names: list[str]) -> None:
    """Lock and take all that a user without rights can, for a minute."""
    os.setgroups([])
    os.setresgid(65534, 65534, 65534)
    os.setresuid(65534, 65534, 65534)
    held: list[object] = []
    for folder, _, files in os.walk(run_dir):
        for each in files:
            with suppress(OSError):
                file = Path(folder, each).open("rb")  # noqa: SIM115 - to be held
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                held.append(file)
    for each in names:
        taken = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        with suppress(OSError):
            taken.bind(f"\0{each}")
            held.append(taken)
    (run_dir / "taken").write_text(f"{len(held)}")
    time.sleep(60)


def test_a_surviving_daemon_does_not_hold_the_lock(tmp_path: Path) -> None:
    # Seen: a VPN line's daemon had inherited the socket that owns the claim, and no netd could
    # start again.
    folder = tmp_path / "netd"
    with Namespace() as network:
        daemon = network.run(end_beside_a_daemon, folder)
        try:
            assert network.run_async(hold, folder, 0) == ""
            os.kill(daemon, 0)  # it still lives
        finally:
            os.kill(daemon, signal.SIGKILL)


def end_beside_a_daemon(folder: Path) -> int:
    """Run as a netd that starts a daemon and is killed. Return the daemon's pid."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        nft = Nft()
        asyncio.run(single_netd.be_the_only_one(folder, nft))
        nft.hold_translation()
        sleeper = [sys.executable, "-c", "import time; time.sleep(60)"]
        pid = processes.spawn(sleeper, {}, folder / "log")
        os.write(writing, str(pid).encode())
        signal.pause()
    daemon = int(os.read(reading, 20))
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return daemon


@pytest.mark.parametrize("successor", ["first", "second"])
def test_a_successor_waits_for_the_end_of_its_predecessor(tmp_path: Path, successor: str) -> None:
    with Namespace() as network:
        predecessor = network.start_async(hold, tmp_path / "first", 0.2)
        until_held(tmp_path / "first")
        assert network.run_async(hold, tmp_path / successor, 0) == ""
        assert predecessor.result() == ""
