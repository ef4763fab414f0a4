"""Failed assertions in helpers show their values, as those in tests do."""

from __future__ import annotations

from types import ModuleType

import pytest

from tests.lab import five
from tests.support import device

REWRITTEN = "@pytest_ar"
"""The name that pytest gives to its own module in one whose assertions it has rewritten."""


@pytest.mark.parametrize("helper", [device, five])
def test_assertions_of_helpers_are_rewritten(helper: ModuleType) -> None:
    assert REWRITTEN in vars(helper)
