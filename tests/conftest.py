"""Fixtures of all tests."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

Need = Callable[[str, bool], None]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the emulated machine first: it takes longest, and others can run beside it."""
    items.sort(key=lambda item: item.get_closest_marker("vm") is None)


@pytest.fixture
def anyio_backend() -> str:
    """The only event loop that egressd runs on."""
    return "asyncio"


@pytest.fixture
def need() -> Need:
    """Skip the test when the machine lacks something; in CI, where it must be, fail."""

    def check(what: str, present: bool) -> None:
        if present:
            return
        if os.environ.get("CI") == "true":
            pytest.fail(f"this machine lacks {what}")
        pytest.skip(f"this machine lacks {what}")

    return check
