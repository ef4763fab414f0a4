"""The whole API in process: real use cases, planner and database, a double of netd."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, MutableMapping
from typing import Any

import pytest
import structlog

from egressd.model.desired import DesiredState
from tests.support.api_device import BEGUN_AT, Device, start_device


@pytest.fixture(autouse=True)
def logged() -> Iterator[list[MutableMapping[str, Any]]]:
    """Return the log entries of the test."""
    with structlog.testing.capture_logs() as entries:
        yield entries


_shared: list[Device] = []


@pytest.fixture
async def device() -> AsyncIterator[Device]:
    """Return a running device with an empty configuration. Making one takes longer than most tests,
    so they share one that is reset.
    """
    if not _shared:
        _shared.append(await start_device())
    device = _shared[0]
    await device.become(DesiredState())
    device.now = BEGUN_AT
    device.fetches.known = {}
    await device.subscriptions.open()
    yield device
    await device.bench.ledger.close()


@pytest.fixture
async def fresh_device() -> AsyncIterator[Device]:
    """Return a device that no client has called yet."""
    device = await start_device()
    yield device
    await device.bench.ledger.close()
