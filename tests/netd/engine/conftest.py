"""Fixtures of the engine's tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.engine import end_workers


@pytest.fixture
def run_dir(tmp_path: Path) -> Iterator[Path]:
    """A folder for workers; workers that a failed test leaves there are ended."""
    folder = tmp_path / "run"
    yield folder
    end_workers(folder)
