"""The console in process: the real store and gate, a clock that tests set, browsers."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from argon2 import PasswordHasher

from egressd.console import passwords
from tests.console.device import PASSWORD, Browser, Device


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """A directory in memory, where there is one: no test here is about the disk."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as path:
        yield Path(path)


@pytest.fixture(autouse=True)
def _cheap_hashes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Real ones, at a thousandth of the cost."""
    cheap = PasswordHasher(time_cost=1, memory_cost=8, parallelism=1)
    monkeypatch.setattr(passwords, "_HASHER", cheap)


@pytest.fixture
async def new_device(tmp_path: Path) -> AsyncIterator[Device]:
    """A device whose password was not chosen yet."""
    device = Device(tmp_path)
    await device.start()
    yield device
    await device.stop()


@pytest.fixture
async def device(new_device: Device) -> Device:
    """Return a device with a password and without a session."""
    browser = new_device.browser("192.168.8.250")
    body = {"code": new_device.code.code(), "password": PASSWORD}
    assert (await browser.send("POST", "/console/setup", body)).status_code == 200
    await browser.send("POST", "/console/logout")
    new_device.journal.records.clear()
    return new_device


@pytest.fixture
async def browser(device: Device) -> Browser:
    """A browser that is logged in."""
    browser = device.browser()
    assert (await browser.log_in()).status_code == 200
    return browser
