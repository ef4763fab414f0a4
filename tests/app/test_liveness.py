"""Proofs of life, for systemd's watchdog and for `supervise`."""

from __future__ import annotations

import asyncio
import os
import socket
from pathlib import Path

import pytest

from egressd.app import liveness, readiness, supervise


async def until(listener: socket.socket, proofs: int) -> list[bytes]:
    loop = asyncio.get_running_loop()
    return [await loop.sock_recv(listener, 100) for _ in range(proofs)]


@pytest.fixture
def listener(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> socket.socket:
    path = str(tmp_path / "notify")
    made = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    made.bind(path)
    made.setblocking(False)
    monkeypatch.setenv("NOTIFY_SOCKET", path)
    return made


@pytest.mark.parametrize("pid", [None, os.getpid()], ids=["any process", "this one"])
async def test_p2_systemd_hears_several_proofs_within_its_limit(
    pid: int | None, listener: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WATCHDOG_USEC", "30000")
    if pid is not None:
        monkeypatch.setenv("WATCHDOG_PID", str(pid))
    with listener:
        said = await liveness.proved(until(listener, 4))
    assert said == [b"WATCHDOG=1"] * 4


@pytest.mark.parametrize(("microseconds", "pid"), [("0", ""), ("", ""), ("3000000", "1")])
async def test_no_proof_is_sent_where_none_is_wanted(
    microseconds: str, pid: str, listener: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (("WATCHDOG_USEC", microseconds), ("WATCHDOG_PID", pid)):
        if value:
            monkeypatch.setenv(name, value)
    assert readiness.watchdog_s() is None

    async def turns() -> None:
        for _ in range(10):
            await asyncio.sleep(0)

    await liveness.proved(turns())
    with listener, pytest.raises(BlockingIOError):
        listener.recv(100)


async def test_the_supervisors_pipe_takes_precedence(monkeypatch: pytest.MonkeyPatch) -> None:
    read, write = os.pipe()
    monkeypatch.setenv(supervise.PIPE, str(write))

    async def one() -> bytes:
        return await asyncio.to_thread(os.read, read, 1)

    assert await liveness.proved(one()) == b"\n"
    os.close(read)
    os.close(write)


async def test_work_does_not_fail_if_the_supervisor_is_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    read, write = os.pipe()
    os.close(read)
    monkeypatch.setenv(supervise.PIPE, str(write))

    async def work() -> int:
        await asyncio.sleep(0)
        return 7

    assert await liveness.proved(work()) == 7
    os.close(write)


def test_status_and_stopping_are_sent(listener: socket.socket) -> None:
    readiness.describe("all is well")
    readiness.stopping("ending")
    with listener:
        assert listener.recv(100) == b"STATUS=all is well"
        assert listener.recv(100) == b"STOPPING=1\nSTATUS=ending"
