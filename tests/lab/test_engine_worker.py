"""The rights of an engine worker, and their limits: promises of its process."""

from __future__ import annotations

import asyncio
import os
import resource
import socket
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import msgspec
import pytest

from egressd.netd.engine import trial
from egressd.netd.engine.pool import Pool
from egressd.netd.engine.protocol import Ping, WorkerQuestion
from egressd.netd.health.worker_descriptors import WorkerDescriptors
from egressd.netd.kernel import open_files
from egressd.netd.system import framing, privileges
from egressd.netd.system.privileges import Capability
from tests.support.engine import (
    ACCOUNT,
    GID,
    UID,
    end_workers,
    opened,
    service,
    target,
    unheard,
    worker_pids,
)
from tests.support.netns import Namespace, eventually

pytestmark = [pytest.mark.lab, pytest.mark.usefixtures("inside")]

NO_CAPABILITIES = "0000000000000000"
NETWORK_CAPABILITIES = "0000000000003400"
"""NET_BIND_SERVICE (bit 10), NET_ADMIN (12) and NET_RAW (13)."""


@pytest.fixture
def namespace(tmp_path: Path) -> Iterator[Namespace]:
    with Namespace() as made:
        yield made
    end_workers(tmp_path / "run")


def credentials(task: Path) -> dict[str, list[str]]:
    """Return the rights in a thread's ``status`` file."""
    lines = (line.partition(":") for line in (task / "status").read_text().splitlines())
    wanted = ("Uid", "Gid", "Groups", "NoNewPrivs")
    return {
        name: value.split() for name, _, value in lines if name in wanted or name.startswith("Cap")
    }


def expected(capabilities: str) -> dict[str, list[str]]:
    return {
        "Uid": [str(UID)] * 4,
        "Gid": [str(GID)] * 4,
        "Groups": [],
        "CapInh": [NO_CAPABILITIES],
        "CapPrm": [capabilities],
        "CapEff": [capabilities],
        "CapBnd": [capabilities],
        "CapAmb": [NO_CAPABILITIES],
        "NoNewPrivs": ["1"],
    }


async def test_every_thread_of_a_worker_has_exactly_its_rights(tmp_path: Path) -> None:
    async with opened(tmp_path / "run") as pool:
        await asyncio.gather(*(pool.start(target(f"node:{n}")) for n in range(20)))
        await pool.try_configs(["{}"])
        trial = int((tmp_path / "run" / "trial.lock").read_text().split()[0])
        for pid in (*pool.pids(), trial):
            threads = list(Path(f"/proc/{pid}/task").iterdir())
            assert len(threads) > 4, "the Go runtime and the engine's threads are among them"
            for thread in threads:
                assert credentials(thread) == expected(NETWORK_CAPABILITIES)


async def test_serving_threads_run_as_batch_and_measuring_ones_do_not(tmp_path: Path) -> None:
    def policies(pid: int) -> set[int]:
        return {os.sched_getscheduler(int(t.name)) for t in Path(f"/proc/{pid}/task").iterdir()}

    async with opened(tmp_path / "run") as pool:
        await asyncio.gather(*(pool.start(target(f"node:{n}")) for n in range(20)))
        await pool.try_configs(["{}"])
        trial = int((tmp_path / "run" / "trial.lock").read_text().split()[0])
        serving = [pid for pid in pool.pids() if pid != trial]
        assert serving
        assert [policies(pid) for pid in serving] == [{os.SCHED_BATCH}] * len(serving)
        assert policies(trial) == {os.SCHED_OTHER}


async def test_a_worker_inherits_nothing_from_netd(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    monkeypatch.delenv("SSL_CERT_DIR", raising=False)
    monkeypatch.setenv("EGRESSD_SECRET", "x")

    # libnftables' sockets are like this one: without close-on-exec.
    netlink = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW)
    netlink.set_inheritable(True)
    secret = os.open("/etc/shadow", os.O_RDONLY)
    os.set_inheritable(secret, True)
    async with opened(tmp_path / "run") as pool:
        process = Path(f"/proc/{pool.pids()[0]}")
        files = [str(entry.readlink()) for entry in (process / "fd").iterdir()]
        assert "/etc/shadow" not in files
        assert files.count("/dev/null") == 1
        assert str(Path(f"/proc/self/fd/{netlink.fileno()}").readlink()) not in files
        assert (process / "cwd").readlink() == tmp_path / "run" / "rule-sets"
        assert os.getsid(pool.pids()[0]) == pool.pids()[0]
        environment = (process / "environ").read_bytes().split(b"\0")
        assert {entry.split(b"=")[0] for entry in environment} <= {
            b"PATH", b"LANG", b"GOGC", b""
        }  # fmt: skip
    netlink.close()
    os.close(secret)


async def test_a_worker_dumps_no_core_and_cannot_be_traced_by_its_user(tmp_path: Path) -> None:
    async with opened(tmp_path / "run") as pool:
        process = Path(f"/proc/{pool.pids()[0]}")
        # The files of a process that is not dumpable belong to root (proc(5)).
        assert (process / "mem").stat().st_uid == 0
        core = next(
            line for line in (process / "limits").read_text().splitlines() if "core" in line
        )
        assert core.split()[4:6] == ["0", "0"]


async def test_a_worker_serves_low_ports_and_marked_sockets(tmp_path: Path) -> None:
    async with opened(tmp_path / "run") as pool:
        inbound = {"type": "http", "listen": "127.0.0.1", "listen_port": 443}
        await pool.start(service("service:1", inbound))
        site = await asyncio.start_server(lambda _, w: w.close(), "127.0.0.1", 8080)
        # IP_TRANSPARENT needs NET_ADMIN, and so does the node's mark.
        node = {"type": "http", "server": "127.0.0.1", "server_port": 443, "routing_mark": 7}
        await pool.start(target("node:1", node))
        site.close()


DESCRIPTORS = 1024


async def test_a_worker_out_of_descriptors_is_reported(tmp_path: Path) -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    account = msgspec.structs.replace(ACCOUNT, descriptors=DESCRIPTORS)
    async with opened(tmp_path / "run", account=account) as pool:
        inbound = {"type": "socks", "listen": "127.0.0.1", "listen_port": 1080}
        running = await pool.start(service("service:1", inbound))
        assert limit_seen_by(UID + 1, pool.workers()[running.worker]) == DESCRIPTORS
        changed = asyncio.Event()
        descriptors = WorkerDescriptors(pool.workers, changed.set)
        descriptors.start()
        with ExitStack() as held:
            for _ in range(DESCRIPTORS):
                held.enter_context(socket.create_connection(("127.0.0.1", 1080)))
            await asyncio.wait_for(changed.wait(), 10)
            assert [*descriptors.full] == [running.worker]
            assert f"all of the {DESCRIPTORS} files" in descriptors.full[running.worker]
            changed.clear()
        await asyncio.wait_for(changed.wait(), 10)
        assert descriptors.full == {}
        await descriptors.close()


def limit_seen_by(uid: int, pid: int) -> int:
    """Return the number of files that a process may open, as another user's process without rights
    reads it. Under systemd netd may not ask the kernel about other users' processes.
    """
    reader, writer = os.pipe()
    if os.fork() == 0:
        try:
            os.setresuid(uid, uid, uid)
            os.write(writer, f"{open_files.limit(pid)}".encode())
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        return int(pipe.read() or 0)


def answer_to(uid: int, path: Path) -> bytes:
    """Return the answer of the worker at `path` to a ping from a process of that user."""
    reader, writer = os.pipe()
    if os.fork() == 0:
        try:
            os.setresuid(uid, uid, uid)
            with socket.socket(socket.AF_UNIX) as connection:
                connection.settimeout(5)
                connection.connect(str(path))
                connection.sendall(framing.pack(WorkerQuestion(number=1, body=Ping())))
                os.write(writer, connection.recv(100) or b"hung up")
        except ConnectionError:
            os.write(writer, b"hung up")
        except OSError as error:
            os.write(writer, repr(error).encode())
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        return pipe.read()


async def test_the_control_socket_serves_root_only() -> None:
    # Only root can enter pytest's folder.
    with tempfile.TemporaryDirectory() as folder:
        run_dir = Path(folder, "run")
        async with opened(run_dir):
            path = run_dir / "worker-1.sock"
            assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0
            assert stat.S_IMODE(run_dir.stat().st_mode) == 0o700
            Path(folder).chmod(0o711)
            assert b"PermissionError" in await asyncio.to_thread(answer_to, UID, path)
            # This holds even if the folder and the socket are opened up:
            run_dir.chmod(0o777)
            path.chmod(0o777)
            assert b"done" in await asyncio.to_thread(answer_to, 0, path)
            assert await asyncio.to_thread(answer_to, UID, path) == b"hung up"
            assert await asyncio.to_thread(answer_to, 65_534, path) == b"hung up"


async def test_a_second_worker_on_the_same_socket_exits(tmp_path: Path) -> None:
    run_dir = tmp_path / "run"
    async with opened(run_dir) as pool:
        argv = [sys.executable, "-m", "egressd.netd.engine.worker"]
        argv += ["--socket", str(run_dir / "worker-1.sock")]
        argv += ["--uid", str(UID), "--gid", str(GID), "--descriptors", "1024"]
        second = await asyncio.to_thread(
            subprocess.run, argv, capture_output=True, text=True, timeout=20, check=False
        )
        assert second.returncode == 1
        assert "another worker serves" in second.stderr
        await pool.start(target("node:1"))


async def test_a_worker_refuses_requests_of_other_users_than_root(tmp_path: Path) -> None:
    """Its folder keeps other users out; a socket that one of them has all the same is closed."""

    run_dir = tmp_path / "run"
    async with opened(run_dir) as pool:
        run_dir.chmod(0o711)
        (run_dir / "worker-1.sock").chmod(0o666)
        os.chdir(run_dir)  # pytest's own folders are root's alone
        os.seteuid(UID)
        try:
            reader, writer = await asyncio.open_unix_connection("worker-1.sock")
        finally:
            os.seteuid(0)
        writer.write(framing.pack(WorkerQuestion(number=1, body=Ping())))
        with suppress(ConnectionError):
            assert await reader.read() == b""
        writer.close()
        log = (run_dir / "worker-1.log").read_text()
        assert f"refused a connection from uid {UID}" in log
        await pool.start(target("node:1"))


def test_a_process_can_drop_all_privileges(namespace: Namespace) -> None:
    """The API does so: between the steps it can read as root, afterwards it cannot."""

    def drop() -> None:
        privileges.begin_drop(UID, GID)
        assert Path("/etc/shadow").read_bytes()
        with pytest.raises(PermissionError):
            os.chown("/etc/shadow", 0, 0)
        with pytest.raises(PermissionError):
            socket.create_server(("127.0.0.1", 80))
        privileges.finish_drop()
        with pytest.raises(PermissionError):
            Path("/etc/shadow").read_bytes()
        with pytest.raises(PermissionError):
            os.seteuid(0)
        with pytest.raises(PermissionError):
            os.setresuid(0, 0, 0)
        assert credentials(Path("/proc/self")) == expected(NO_CAPABILITIES)
        # A program started from here does not gain rights, either.
        output = subprocess.run(
            ["grep", "-E", "Cap(Prm|Eff)", "/proc/self/status"],
            capture_output=True, text=True, check=True,
        ).stdout  # fmt: skip
        assert output.split()[1::2] == [NO_CAPABILITIES] * 2

    namespace.run(drop)


def test_dropping_in_one_step_keeps_the_given_capabilities(namespace: Namespace) -> None:
    def drop() -> None:
        privileges.become(UID, GID, {Capability.NET_BIND_SERVICE})
        with socket.create_server(("127.0.0.1", 80)):
            pass
        assert credentials(Path("/proc/self")) == expected("0000000000000400")

    namespace.run(drop)


def test_dropping_privileges_with_threads_or_to_root_is_refused(namespace: Namespace) -> None:
    async def with_threads() -> None:
        await asyncio.to_thread(str)
        privileges.begin_drop(UID, GID)

    with pytest.raises(RuntimeError, match="before threads start, not with 2"):
        namespace.run_async(with_threads)
    with pytest.raises(ValueError, match="must not be root's"):
        namespace.run(privileges.become, 0, GID)
    with pytest.raises(ValueError, match="must not be root's"):
        namespace.run(privileges.become, UID, 0)


async def test_an_idle_trial_worker_ends_with_its_pool(tmp_path: Path) -> None:
    run_dir = tmp_path / "run"
    pool = Pool(run_dir, ACCOUNT, 1, on_lost=unheard, on_trouble=unheard, mapped=tuple)
    await pool.open()
    await pool.try_configs(["{}"])
    trial = int((run_dir / "trial.lock").read_text().split()[0])
    pidfd = os.pidfd_open(trial)
    ended = asyncio.Event()
    asyncio.get_running_loop().add_reader(pidfd, ended.set)
    pool.release()
    async with asyncio.timeout(5):
        await ended.wait()
    asyncio.get_running_loop().remove_reader(pidfd)
    os.close(pidfd)
    async with opened(run_dir):
        pass


async def test_an_idle_trial_worker_ends_and_is_started_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trial, "_IDLE_S", 0.0)
    run_dir = tmp_path / "run"

    def trial_files() -> list[Path]:
        return [*run_dir.glob("trial.*")]

    async with opened(run_dir) as pool:
        serving = pool.pids()
        assert await pool.try_configs(["{}"]) == [""]
        await eventually(lambda: not trial_files())
        assert worker_pids(run_dir) == serving
        # The next one is asked as the one before ends: requests come without a pause.
        for _ in range(3):
            assert await asyncio.gather(*(pool.try_configs(["{}", "[]"]) for _ in range(3)))
            assert await pool.try_configs(["{}"]) == [""]
        await eventually(lambda: not trial_files())
        assert pool.pids() == serving


def test_a_workers_log_cannot_fill_the_disk(namespace: Namespace, tmp_path: Path) -> None:
    log = tmp_path / "worker.log"

    async def grow(size: int) -> int:
        from egressd.netd.engine import server

        descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.write(descriptor, b"x" * size)
        os.dup2(descriptor, 2)
        server._bound_log()
        os.write(2, b"y")
        return log.stat().st_size

    assert namespace.run_async(grow, 1000) == 1001
    assert namespace.run_async(grow, 2 << 20) == 1
