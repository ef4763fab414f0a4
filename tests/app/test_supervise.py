"""The keeper of the two processes: what happens to them when it is killed itself."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

_CHILD = """
import asyncio, pathlib
from egressd.app.supervise import when_keeper_ends

async def main():
    ending = asyncio.Event()
    when_keeper_ends(ending.set)
    pathlib.Path({pid!r}).write_text(str(__import__("os").getpid()))
    await ending.wait()
    pathlib.Path({ended!r}).write_text("in good order")

asyncio.run(main())
"""
_KEEPER = """
import asyncio, signal, sys
from egressd.app.supervise import Child

asyncio.run(Child("child", sys.argv[1:], restart_signal=signal.SIGTERM).run())
"""


def eventually(check: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 15
    while not check():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def start_keeper(folder: Path) -> tuple[subprocess.Popen[bytes], Path, Path]:
    pid, ended = folder / "pid", folder / "ended"
    child = _CHILD.format(pid=str(pid), ended=str(ended))
    argv = [sys.executable, "-c", _KEEPER, sys.executable, "-c", child]
    keeper = subprocess.Popen(argv, stdin=subprocess.DEVNULL)
    eventually(lambda: pid.exists() and pid.read_text() != "")
    return keeper, pid, ended


def test_p2_children_end_in_good_order_when_their_keeper_is_killed(tmp_path: Path) -> None:
    # Found by chaos: the children of a killed keeper lived on, and two netd healed what the
    # other one did without an end.
    keeper, _, ended = start_keeper(tmp_path)
    keeper.kill()
    keeper.wait()
    eventually(ended.exists)


def test_a_child_that_is_killed_is_started_again(tmp_path: Path) -> None:
    keeper, pid, _ = start_keeper(tmp_path)
    try:
        first = pid.read_text()
        os.kill(int(first), signal.SIGKILL)
        eventually(lambda: pid.read_text() not in ("", first))
    finally:
        keeper.kill()
        keeper.wait()


@pytest.mark.parametrize("arguments", [["netd"], ["api"]])
def test_a_process_of_its_own_has_no_keeper(arguments: list[str]) -> None:
    code = f"import sys; sys.argv[1:] = {arguments}\n" + (
        "from egressd.app.supervise import when_keeper_ends\n"
        "when_keeper_ends(lambda: sys.exit('ended'))"  # would need a running loop otherwise
    )
    done = subprocess.run([sys.executable, "-c", code], stdin=subprocess.DEVNULL, check=False)
    assert done.returncode == 0


def test_p2_a_child_that_cannot_be_started_is_tried_again(tmp_path: Path) -> None:
    program, ran = tmp_path / "program", tmp_path / "ran"
    argv = [sys.executable, "-c", _KEEPER, str(program)]
    keeper = subprocess.Popen(argv, stdin=subprocess.DEVNULL)
    try:
        time.sleep(0.5)
        assert keeper.poll() is None
        draft = tmp_path / "draft"
        draft.write_text(f"#!/bin/sh\ntouch {ran}\nexec sleep 60\n")
        draft.chmod(0o755)
        draft.rename(program)
        eventually(ran.exists)
    finally:
        keeper.terminate()
        keeper.wait()
