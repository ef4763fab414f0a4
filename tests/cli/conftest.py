"""A device that serves its API on loopback, and the command line that calls it."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import structlog
from click.testing import CliRunner, Result

from egressd.api.server import ApiListener, serve
from egressd.app import local_socket
from egressd.cli import cli
from tests.api.conftest import TOKEN, Device, start_device

if TYPE_CHECKING:
    from egressd.service.rules import Rules


class Shell:
    """Runs commands of ``egressd`` against a device, as one who has its token."""

    def __init__(self, device: Device, url: str, folder: Path) -> None:
        self.device = device
        self.folder = folder
        """The api's, in the folder of the device's data."""
        self.url = url
        self.token = TOKEN

    def run(self, *arguments: str, stdin: str = "") -> Result:
        """One command, whatever comes of it."""
        env = {"EGRESSD_URL": self.url, "EGRESSD_TOKEN": self.token}
        return CliRunner(env=env).invoke(cli, arguments, input=stdin)

    def say(self, *arguments: str, stdin: str = "") -> str:
        """Return the output of a command that must succeed."""
        result = self.run(*arguments, stdin=stdin)
        assert result.exit_code == 0, result.output or result.exception
        return result.stdout

    def json(self, *arguments: str, stdin: str = "") -> Any:
        """Return the document that a command prints with ``--json``."""
        return json.loads(self.say(*arguments, "--json", stdin=stdin))

    def problem(self, *arguments: str, stdin: str = "") -> str:
        """Return the error of a command that must fail."""
        result = self.run(*arguments, stdin=stdin)
        assert result.exit_code != 0
        return str(result.exception)


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


def listed(rules: Rules) -> list[tuple[str, str, bool]]:
    """Address, target and switch of each rule."""
    return [(rule.host, rule.target_node, rule.is_enabled) for rule in rules.list()]
