"""Lines to servers that do what few others do: see `inside.oddities`.

To run some of them: ``pytest tests/vm/test_odd_servers_vm.py -k 'echoes or closed'``.
"""

from __future__ import annotations

import pytest

from tests.vm import verdicts
from tests.vm.inside.oddities import SCENARIOS
from tests.vm.verdicts import Boot

pytestmark = verdicts.MARKS


@pytest.fixture(scope="module")
def booted(request: pytest.FixtureRequest) -> Boot:
    """All scenarios that are to be tested, in one boot."""
    return verdicts.booted(request, "tests.vm.inside.oddities")


@pytest.mark.parametrize("name", [scenario.__name__ for scenario in SCENARIOS])
def test_a_scenario(name: str, booted: Boot) -> None:
    booted.check(name)
