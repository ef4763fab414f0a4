"""Fixtures of the engine's tests."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path

import pytest

from tests.lab.netns import Namespace
from tests.netd.engine.rig import end_workers

Body = Callable[[], Coroutine[None, None, None]]


@pytest.fixture
def namespace() -> Iterator[Namespace]:
    """A network with nothing but a loopback."""
    with Namespace() as made:
        yield made


@pytest.fixture
def run_dir(tmp_path: Path) -> Iterator[Path]:
    """A folder for workers; workers that a failed test leaves there are ended."""
    folder = tmp_path / "run"
    yield folder
    end_workers(folder)


@pytest.fixture
def inside(namespace: Namespace) -> Callable[[Body], None]:
    """Runs a test's body in the namespace, in a process of its own."""

    def run(body: Body) -> None:
        namespace.run(lambda: asyncio.run(body()))

    return run
