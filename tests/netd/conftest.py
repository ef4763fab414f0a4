"""Fixtures of netd's tests."""

from __future__ import annotations

import asyncio

import pytest

from tests.support.netns import Body, Inside, Namespace


@pytest.fixture
def inside(namespace: Namespace) -> Inside:
    """Runs a test's body in the namespace, in a process of its own."""

    def run(body: Body) -> None:
        namespace.run(lambda: asyncio.run(body()))

    return run
