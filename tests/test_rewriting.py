"""Failed assertions in helpers show their values, as those in tests do."""

from __future__ import annotations

from importlib import import_module

import pytest

REWRITTEN = "@pytest_ar"
"""The name that pytest gives to its own module in one whose assertions it has rewritten."""


@pytest.mark.parametrize("helper", ["tests.support.device", "tests.lab.five"])
def test_assertions_of_helpers_are_rewritten(helper: str) -> None:
    assert REWRITTEN in vars(import_module(helper))
