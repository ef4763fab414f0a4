"""Workers whose run directory belongs to no netd any more."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from egressd.netd.engine import launch
from egressd.netd.engine.pool import Pool
from egressd.netd.system import orphans
from tests.support.engine import ACCOUNT, accepts, opened, service, unheard
from tests.support.netns import Namespace, is_alive

pytestmark = pytest.mark.slow

PORT = 1080
INBOUND = {"type": "mixed", "listen": "127.0.0.1", "listen_port": PORT}


async def leave(run_dir: Path) -> int:
    """Leave a worker that serves, without a netd; return its pid."""
    pool = Pool(run_dir, ACCOUNT, 1, on_lost=unheard, on_trouble=unheard, mapped=tuple)
    await pool.open()
    await pool.start(service("px", INBOUND))
    living = launch.holder(run_dir / "worker-1.sock")
    assert living is not None
    pool.release()
    os.close(living[1])
    return living[0]


@pytest.mark.usefixtures("inside")
async def test_workers_of_another_run_directory_are_ended(run_dir: Path, tmp_path: Path) -> None:
    """Past fault: after `[run] dir` was changed or cleared the old workers continued beside the new
    ones. A deleted proxy service continued to serve with its old password.
    """

    pid = await leave(tmp_path / "before")
    assert await accepts(PORT)
    async with opened(run_dir):
        assert not is_alive(pid)
        assert not await accepts(PORT)


@pytest.mark.usefixtures("inside")
async def test_workers_whose_files_are_deleted_are_ended(run_dir: Path) -> None:
    pid = await leave(run_dir)
    shutil.rmtree(run_dir)
    async with opened(run_dir):
        assert not is_alive(pid)


@pytest.mark.usefixtures("inside")
async def test_known_workers_and_those_of_other_namespaces_are_not_ended(
    run_dir: Path, tmp_path: Path
) -> None:
    pid = await leave(run_dir)
    async with opened(run_dir) as pool:
        assert launch.holder(run_dir / "worker-1.sock") is not None
        assert is_alive(pid)
        assert pool.running().keys() == {"px"}
        with Namespace() as elsewhere:
            assert elsewhere.run(orphans.end, launch.is_worker) == []


END = """
from egressd.netd.engine import launch
from egressd.netd.system import orphans
print(*orphans.end(launch.is_worker))
"""


def ended_without_the_right_to_trace() -> list[str]:
    """End workers as netd's unit does; return their pids."""
    argv = ["setpriv", "--bounding-set=-sys_ptrace", sys.executable, "-c", END]
    return subprocess.run(argv, check=True, capture_output=True, text=True).stdout.split()


@pytest.mark.usefixtures("inside")
async def test_workers_elsewhere_are_spared_without_the_right_to_trace(run_dir: Path) -> None:
    """Past fault: without it netd compared control groups. It ended workers of other namespaces in
    its own group, and none of its own namespace in a group of their own, as systemd gives them.
    """
    pid = await leave(run_dir)
    with Namespace() as elsewhere:
        assert elsewhere.run(ended_without_the_right_to_trace) == []
    assert is_alive(pid)
    assert str(pid) in ended_without_the_right_to_trace()
    assert not is_alive(pid)


def test_a_process_with_the_arguments_of_a_worker_is_not_ended(
    tmp_path: Path, namespace: Namespace
) -> None:
    def body() -> None:
        argv = [sys.executable, "-c", "input()", *launch.WORKER, "--socket", "/x"]
        with subprocess.Popen(argv, stdin=subprocess.PIPE) as process:
            assert orphans.end(launch.is_worker) == []
            assert process.poll() is None
            process.communicate(b"\n", timeout=10)

    namespace.run(body)
