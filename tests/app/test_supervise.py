"""The supervisor of the two processes: their fate when the supervisor itself is killed."""

from __future__ import annotations

import os
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import structlog

from egressd.app import log_lines
from egressd.app.supervise import COMMAND, Child, Endpoints

pytestmark = pytest.mark.slow

_CHILD = """
import asyncio, pathlib
from egressd.app.supervise import when_supervisor_ends

async def main():
    ending = asyncio.Event()
    when_supervisor_ends(ending.set)
    pathlib.Path({pid!r}).write_text(str(__import__("os").getpid()))
    await ending.wait()
    pathlib.Path({ended!r}).write_text("in good order")

asyncio.run(main())
"""
_KEEPER = """
import signal, sys
from egressd.app.supervise import Child, Supervisor

Supervisor([Child("child", sys.argv[1:], restart_signal=signal.SIGTERM)]).run()
"""


def eventually(check: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 15
    while not check():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def start_supervisor(folder: Path) -> tuple[subprocess.Popen[bytes], Path, Path]:
    pid, ended = folder / "pid", folder / "ended"
    child = _CHILD.format(pid=str(pid), ended=str(ended))
    argv = [sys.executable, "-c", _KEEPER, sys.executable, "-c", child]
    supervisor = subprocess.Popen(argv, stdin=subprocess.DEVNULL)
    eventually(lambda: pid.exists() and pid.read_text() != "")
    return supervisor, pid, ended


def test_p2_children_end_in_order_when_their_supervisor_is_killed(tmp_path: Path) -> None:
    # Found by chaos: the children of a killed supervisor lived on, and two netd repaired each
    # other's work endlessly.
    """Past fault: children outlived `egressd serve`, and two netds undid each other's repairs for
    ever.
    """
    supervisor, _, ended = start_supervisor(tmp_path)
    supervisor.kill()
    supervisor.wait()
    eventually(ended.exists)


def test_a_killed_child_is_restarted(tmp_path: Path) -> None:
    supervisor, pid, _ = start_supervisor(tmp_path)
    try:
        first = pid.read_text()
        os.kill(int(first), signal.SIGKILL)
        eventually(lambda: pid.read_text() not in ("", first))
    finally:
        supervisor.kill()
        supervisor.wait()


@pytest.mark.parametrize("arguments", [["netd"], ["api"]])
def test_a_process_started_alone_has_no_supervisor(arguments: list[str]) -> None:
    code = f"import sys; sys.argv[1:] = {arguments}\n" + (
        "from egressd.app.supervise import when_supervisor_ends\n"
        "when_supervisor_ends(lambda: sys.exit('ended'))"  # would need a running loop otherwise
    )
    done = subprocess.run([sys.executable, "-c", code], stdin=subprocess.DEVNULL, check=False)
    assert done.returncode == 0


def test_p2_a_child_that_cannot_be_started_is_retried(tmp_path: Path) -> None:
    program, ran = tmp_path / "program", tmp_path / "ran"
    argv = [sys.executable, "-c", _KEEPER, str(program)]
    supervisor = subprocess.Popen(argv, stdin=subprocess.DEVNULL)
    try:
        time.sleep(0.5)
        assert supervisor.poll() is None
        draft = tmp_path / "draft"
        draft.write_text(f"#!/bin/sh\ntouch {ran}\nexec sleep 60\n")
        draft.chmod(0o755)
        draft.rename(program)
        eventually(ran.exists)
    finally:
        supervisor.terminate()
        supervisor.wait()


def test_p2_children_are_watched_without_a_thread(
    tmp_path: Path,
) -> None:
    code = """
import sys, threading
from pathlib import Path
from egressd.app import supervise

def refuse(thread):
    raise RuntimeError("can't start new thread")

threading.Thread.start = refuse
supervise.COMMAND = ("/bin/sh", "-c", sys.argv[1])
supervise.main("/nowhere", "/nowhere", "127.0.0.1:0", "[::1]:0")
"""
    pids = tmp_path / "pids"
    script = f"echo $$ >> {pids}; exec cat"
    supervisor = subprocess.Popen([sys.executable, "-c", code, script], stdin=subprocess.DEVNULL)
    try:
        eventually(lambda: pids.exists() and len(pids.read_text().split()) == 2)
        os.kill(int(pids.read_text().split()[0]), signal.SIGKILL)
        eventually(lambda: len(pids.read_text().split()) == 3)
    finally:
        supervisor.kill()
        supervisor.wait()


def test_p6_no_module_is_imported_from_the_working_directory(tmp_path: Path) -> None:
    (tmp_path / "structlog.py").write_text("open('loaded', 'w')\n")
    done = subprocess.run([*COMMAND, "nonsense"], cwd=tmp_path, capture_output=True, check=False)
    assert b"egressd.app netd|api" in done.stderr
    assert not (tmp_path / "loaded").exists()


def test_a_child_that_is_to_end_is_not_restarted(tmp_path: Path) -> None:
    starts = tmp_path / "starts"
    script = f"echo >> {starts}; exec cat"
    child = Child("child", ["/bin/sh", "-c", script], restart_signal=signal.SIGKILL)

    def until(check: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 15
        while not check():
            assert time.monotonic() < deadline
            select.select(child.watched, [], [], 0.01)
            child.turn()

    until(lambda: starts.exists() and starts.read_text() == "\n")
    child.let_end()
    child.restart()  # ends it, as Ctrl-C would
    until(lambda: not child.is_running)
    assert child.stop(lambda _: None) is False
    assert child.due is None
    assert starts.read_text() == "\n"


def test_the_endpoints_are_read_again_when_the_file_differs(tmp_path: Path) -> None:
    file = tmp_path / "egressd.toml"
    endpoints = Endpoints(str(file), ["--config", str(file)], ["0.0.0.0:1", "0.0.0.0:2"])
    assert endpoints.current() == ["0.0.0.0:1", "0.0.0.0:2"]
    file.write_text('[api]\nlisten = "127.0.0.1:5"\n')
    assert endpoints.current() == ["127.0.0.1:5", "0.0.0.0:8788"]
    file.write_text("[api]\nlisten = 5\nport = 7\n")
    for _ in range(2):
        with pytest.raises(OSError, match=r"^api.listen: must be ADDRESS:PORT.*; api.port is not"):
            endpoints.current()


def test_the_supervisor_loads_the_standard_library_only() -> None:
    code = "import sys; from egressd.app import supervise; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    tops = {name.partition(".")[0] for name in done.stdout.split()}
    site = {"_distutils_hack", "sitecustomize", "usercustomize", "a1_coverage"}
    assert tops - {"__main__", "egressd"} - site <= {*sys.stdlib_module_names}
    assert not tops & {"asyncio", "subprocess", "typing", "json", "logging", "ssl", "dataclasses"}


@pytest.mark.parametrize("is_coloured", [False, True])
@pytest.mark.parametrize("reason", ["plain", 'it "ended"\nwith ü', "it ended with code 1", ""])
def test_its_lines_are_those_of_the_other_processes(reason: str, is_coloured: bool) -> None:
    values = {"process": "netd", "reason": reason}
    event = {**values, "event": "restarting a process", "level": "warning"}
    renderers: dict[str, Any] = {
        "json": structlog.processors.JSONRenderer(ensure_ascii=False),
        "text": structlog.dev.ConsoleRenderer(colors=is_coloured),
    }
    for form, renderer in renderers.items():
        line = log_lines.warning(form, "restarting a process", values, is_coloured)
        stamp = re.search(r"\d{4}-[-:.\dT]+Z", line)
        assert stamp is not None
        assert line == renderer(None, "", {**event, "timestamp": stamp[0]})


_BEATING = """
import asyncio, os, pathlib, time
from egressd.app.supervise import PIPE

pathlib.Path({pid!r}).write_text(str(os.getpid()))
for _ in range({proofs}):
    os.write(int(os.environ[PIPE]), b"\\n")
    time.sleep(0.05)
{then}
"""
_WATCHING = """
import signal, sys
from egressd.app.supervise import Child, Supervisor

child = Child("child", sys.argv[1:], restart_signal=signal.SIGTERM, hung_after_s=1.0)
Supervisor([child]).run()
"""


@pytest.mark.parametrize("then", ["os.kill(os.getpid(), 19)", "while True: pass"])
def test_p2_a_child_that_is_frozen_or_hangs_is_replaced(then: str, tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    child = _BEATING.format(pid=str(pid), proofs=3, then=then)
    argv = [sys.executable, "-c", _WATCHING, sys.executable, "-c", child]
    supervisor = subprocess.Popen(argv, stdin=subprocess.DEVNULL)
    try:
        eventually(lambda: pid.exists() and pid.read_text() != "")
        first = pid.read_text()
        eventually(lambda: pid.read_text() not in ("", first))
        eventually(lambda: not Path(f"/proc/{first}").exists())
    finally:
        os.kill(int(pid.read_text()), signal.SIGKILL)
        supervisor.kill()
        supervisor.wait()


@pytest.mark.parametrize("proofs", [0, 1000])
def test_a_child_that_proves_life_or_has_not_begun_to_is_left_alone(
    proofs: int, tmp_path: Path
) -> None:
    pid, second = tmp_path / "pid", tmp_path / "second"
    child = _BEATING.format(pid=str(pid), proofs=proofs, then="time.sleep(60)")
    argv = [sys.executable, "-c", _WATCHING, sys.executable, "-c", child]
    hung = _BEATING.format(pid=str(second), proofs=1, then="time.sleep(60)")
    supervisors = [
        subprocess.Popen(argv, stdin=subprocess.DEVNULL),
        subprocess.Popen([*argv[:-1], hung], stdin=subprocess.DEVNULL),
    ]
    try:
        eventually(lambda: pid.exists() and pid.read_text() != "")
        first = pid.read_text()
        # In the time in which another child is replaced twice.
        seen: set[str] = set()
        eventually(lambda: second.exists() and len(seen | {second.read_text()}) > 0)
        for _ in range(3):
            eventually(lambda: second.read_text() not in seen | {""})
            seen.add(second.read_text())
        assert pid.read_text() == first
        assert Path(f"/proc/{first}").exists()
    finally:
        for supervisor in supervisors:
            supervisor.kill()
            supervisor.wait()
        for file in (pid, second):
            os.kill(int(file.read_text()), signal.SIGKILL)


def test_a_child_that_was_frozen_with_its_supervisor_is_left_alone(tmp_path: Path) -> None:
    pid, count = tmp_path / "pid", tmp_path / "count"
    child = f"""
import os, pathlib, time
from egressd.app.supervise import PIPE

pathlib.Path({str(pid)!r}).write_text(str(os.getpid()))
for proofs in range(1000):
    os.write(int(os.environ[PIPE]), b"\\n")
    pathlib.Path({str(count)!r}).write_text(str(proofs))
    time.sleep(0.05)
"""
    argv = [sys.executable, "-c", _WATCHING, sys.executable, "-c", child]
    supervisor = subprocess.Popen(argv, stdin=subprocess.DEVNULL)
    first = 0
    try:
        eventually(lambda: count.exists() and count.read_text() not in ("", "0"))
        first = int(pid.read_text())
        for number in (signal.SIGSTOP, signal.SIGCONT):
            # The supervisor continues before its child does, and looks before it gets a proof.
            for frozen in (supervisor.pid, first):
                os.kill(frozen, number)
            if number == signal.SIGSTOP:
                time.sleep(3)  # longer than a child may be silent
        eventually(lambda: count.read_text() != "")  # it may have been frozen while it wrote
        seen = int(count.read_text() or 0)
        eventually(lambda: int(count.read_text() or 0) > seen + 40)
        assert pid.read_text() == str(first)
    finally:
        supervisor.kill()
        supervisor.wait()
        if first:
            os.kill(first, signal.SIGKILL)
