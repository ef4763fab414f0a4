"""Fixtures of all tests."""

from __future__ import annotations

import pytest


@pytest.fixture
def anyio_backend() -> str:
    """The only event loop that egressd runs on."""
    return "asyncio"
