"""Network namespaces for tests: made on entering, removed on leaving in every case.

    with Namespace() as router, Namespace() as client:
        router.cable("lan0", client, "eth0")
        router.shell("ip address add 192.0.2.1/24 dev lan0; ip link set lan0 up")
        flood = client.start(send_packets, "192.0.2.1")
        assert router.run(function, argument) == "what the function returned"
        flood.result()

A namespace has no name and is held by a descriptor: it ends with the test's process even
when that is killed. Functions run in a forked child inside the namespace, so that tests may
leave sockets, threads and event loops behind; their results come back over a pipe.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import pickle
import select
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Generic, ParamSpec, Self, TypeVar, cast

import pytest

P = ParamSpec("P")
T = TypeVar("T")

_CLONE_NEWNET = 0x4000_0000
_LIBC = ctypes.CDLL(None, use_errno=True)


class ChildTraceback(Exception):
    """The child's traceback as text, the cause of the exception that the parent raises."""

    def __str__(self) -> str:
        return f"\n\n{self.args[0]}"


class Running(Generic[T]):
    """A function that runs in a namespace."""

    def __init__(self, pid: int, pipe: int) -> None:
        self.pid = pid
        self._pipe = pipe

    def result(self, timeout_s: float = 60.0) -> T:
        """Wait for the function, and return its result or raise its exception.

        All processes that it started are killed then. Raises TimeoutError after `timeout_s`.
        """
        answer = b""
        try:
            while select.select([self._pipe], [], [], timeout_s)[0]:
                part = os.read(self._pipe, 1 << 20)
                if not part:
                    break
                answer += part
            else:
                raise TimeoutError(f"nothing came back in {timeout_s} s")
        finally:
            self.kill()
        if not answer:
            raise RuntimeError("the child ended without an answer")
        value, error, where = pickle.loads(answer)
        if error is not None:
            raise error from ChildTraceback(where)
        return cast(T, value)

    def kill(self) -> None:
        """End the function and all processes that it started. May be called again."""
        if self._pipe < 0:
            return
        os.killpg(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        os.close(self._pipe)
        self._pipe = -1


class Namespace:
    """A network namespace of its own, with nothing in it but ``lo``, which is up."""

    def __enter__(self) -> Self:
        if os.geteuid() != 0:
            if "CI" in os.environ:
                raise PermissionError("these tests need root")
            pytest.skip("needs root")
        with ThreadPoolExecutor(1) as pool:
            self._descriptor = pool.submit(_make).result()
        self._started: list[Running[Any]] = []
        self.shell("ip link set lo up")
        return self

    def __exit__(self, *_: object) -> None:
        for running in self._started:
            running.kill()
        os.close(self._descriptor)

    @property
    def path(self) -> str:
        """Return a path for ``ip … netns PATH`` and setns, valid while the test's process lives."""
        return f"/proc/{os.getpid()}/fd/{self._descriptor}"

    def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call the function inside, and return its result or raise its exception."""
        return self.start(function, *args, **kwargs).result()

    def run_async(
        self, function: Callable[P, Coroutine[Any, Any, T]], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Call the coroutine function inside, in an event loop of its own. See `run`."""
        return self.start_async(function, *args, **kwargs).result()

    def start_async(
        self, function: Callable[P, Coroutine[Any, Any, T]], *args: P.args, **kwargs: P.kwargs
    ) -> Running[T]:
        """Begin to call the coroutine function inside, in an event loop of its own."""
        return self.start(lambda: asyncio.run(function(*args, **kwargs)))

    def start(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> Running[T]:
        """Begin to call the function inside, in a process and process group of its own."""
        sys.stdout.flush()
        sys.stderr.flush()
        reader, writer = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.setpgid(0, 0)
            os.close(reader)
            self._serve(writer, lambda: function(*args, **kwargs))
        os.setpgid(pid, pid)
        os.close(writer)
        running: Running[T] = Running(pid, reader)
        self._started.append(running)
        return running

    def _serve(self, writer: int, call: Callable[[], object]) -> None:
        """Call the function in the child, send its result, and exit."""
        try:
            enter(self._descriptor)
            answer = pickle.dumps((call(), None, ""))
        except BaseException as error:
            where = traceback.format_exc()
            try:
                answer = pickle.dumps((None, error, where))
                pickle.loads(answer)
            except Exception:
                answer = pickle.dumps((None, RuntimeError(repr(error)), where))
        with os.fdopen(writer, "wb") as pipe:
            pipe.write(answer)
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)

    def shell(self, script: str) -> str:
        """Run shell commands inside, up to the first that fails, and return their output."""
        return self.run(_shell, script)

    def cable(self, name: str, other: Namespace, other_name: str) -> None:
        """Join two namespaces by a pair of virtual Ethernet interfaces, both up."""
        self.shell(f"ip link add {name} type veth peer name {other_name} netns {other.path}")
        self.shell(f"ip link set {name} up")
        # Until the kernel has noticed the carrier, the interfaces drop what is sent (noop_qdisc).
        is_up = "until ip link show {0} | grep -q 'state UP'; do sleep 0.01; done"
        other.shell(f"ip link set {other_name} up; {is_up.format(other_name)}")
        self.shell(is_up.format(name))


class JoinedNamespace(Namespace):
    """An existing namespace, by its name in /run/netns. It stays when the block is left."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __enter__(self) -> Self:
        self._descriptor = os.open(f"/run/netns/{self._name}", os.O_RDONLY | os.O_CLOEXEC)
        self._started = []
        return self


def _make() -> int:
    if _LIBC.unshare(_CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), "unshare")
    return os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)


def enter(descriptor: int) -> None:
    """Move this thread into a network namespace. Raises OSError."""
    if _LIBC.setns(descriptor, _CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), "setns")


def _shell(script: str) -> str:
    done = subprocess.run(
        ["sh", "-ec", script], check=False, capture_output=True, text=True, timeout=100
    )
    if done.returncode:
        raise AssertionError(f"{script!r} ended with {done.returncode}: {done.stderr.strip()}")
    return done.stdout


async def eventually(condition: Callable[[], bool], timeout_s: float = 20.0) -> None:
    """Return when `condition` holds. Raises TimeoutError after `timeout_s`."""
    async with asyncio.timeout(timeout_s):
        while not condition():  # noqa: ASYNC110 (the condition sets no event)
            await asyncio.sleep(0.002)


def is_alive(pid: int) -> bool:
    """True if the process exists and is no zombie (proc_pid_stat(5), field 3)."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"
