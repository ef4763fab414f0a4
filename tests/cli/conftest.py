"""A device that serves its API on loopback, and the command line that calls it."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import structlog

from egressd.api.server import ApiListener, serve
from egressd.app import local_socket
from tests.cli.shell import Shell
from tests.support.api_device import Device, start_device

if TYPE_CHECKING:
    pass


@pytest.fixture(autouse=True)
def _no_log_between() -> Iterator[None]:
    """The device logs in the process whose output the tests read."""
    with structlog.testing.capture_logs():
        yield


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    folder = tmp_path / "device" / "api"
    folder.mkdir(parents=True)
    local = local_socket.listen(folder)
    local.listen()
    bound = socket.socket()
    bound.bind(("127.0.0.1", 0))
    bound.listen()
    ready: list[tuple[Device, Callable[[], object]]] = []
    is_ready = threading.Event()

    async def run() -> None:
        device = await start_device()
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        ready.append((device, lambda: loop.call_soon_threadsafe(stop.set)))
        is_ready.set()
        await serve(device.app, [ApiListener(bound), ApiListener(local)], stop)
        await device.journal.close()
        await device.bench.ledger.close()

    thread = threading.Thread(target=lambda: asyncio.run(run()))
    thread.start()
    assert is_ready.wait(30)
    device, stop = ready[0]
    yield Shell(device, f"http://127.0.0.1:{bound.getsockname()[1]}", folder)
    stop()
    thread.join(30)
