"""The namespaces that other tests run in."""

import os
import socket
import subprocess
import time
from pathlib import Path

import pytest

from tests.support.netns import Namespace

pytestmark = pytest.mark.lab


def interfaces() -> list[str]:
    return sorted(name for _, name in socket.if_nameindex())


def namespace_inode() -> int:
    return Path("/proc/self/ns/net").stat().st_ino


def test_functions_run_inside_and_the_test_stays_outside() -> None:
    outside = namespace_inode()
    with Namespace() as first, Namespace() as second:
        assert len({outside, first.run(namespace_inode), second.run(namespace_inode)}) == 3
        assert first.run(interfaces) == ["lo"]
    assert namespace_inode() == outside


def test_a_cable_joins_two_namespaces() -> None:
    with Namespace() as left, Namespace() as right:
        left.cable("l0", right, "r0")
        left.shell("ip address add 192.0.2.1/30 dev l0")
        right.shell("ip address add 192.0.2.2/30 dev r0")
        assert "r0" in right.run(interfaces)
        with pytest.raises(ConnectionRefusedError):
            left.run(socket.create_connection, ("192.0.2.2", 9))


def test_failures_inside_are_raised_outside() -> None:
    def fail() -> None:
        raise KeyError("lost")

    with Namespace() as namespace:
        with pytest.raises(KeyError, match="lost"):
            namespace.run(fail)
        with pytest.raises(AssertionError, match="ended with 3"):
            namespace.shell("true; exit 3")


def test_child_processes_of_a_function_end_with_it() -> None:
    def start_sleeper() -> int:
        return subprocess.Popen(["sleep", "600"]).pid

    with Namespace() as namespace:
        sleeper = namespace.run(start_sleeper)
        for _ in range(100):
            if not Path(f"/proc/{sleeper}/exe").exists():
                break
            time.sleep(0.01)
        else:
            pytest.fail("the sleeper goes on")


def test_a_function_that_hangs_times_out() -> None:
    with Namespace() as namespace, pytest.raises(TimeoutError):
        namespace.start(time.sleep, 600).result(timeout_s=0.1)


def test_running_functions_end_with_the_namespace() -> None:
    with Namespace() as namespace:
        sleeper = namespace.start(time.sleep, 600)
    with pytest.raises(ProcessLookupError):
        os.kill(sleeper.pid, 0)
