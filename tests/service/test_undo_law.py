"""Random changes of every kind, undone in reverse order, give the first state."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from tests.support.random_operator import check_undoing

if TYPE_CHECKING:
    from tests.support.use_cases import Bench

pytestmark = pytest.mark.slow

CHANGES: Final = 1000
SEED: Final = 812


@pytest.mark.timeout(900)
async def test_undone_changes_give_the_first_state(bench: Bench, tmp_path: Path) -> None:
    await check_undoing(bench, tmp_path / "data", changes=CHANGES, seed=SEED)
