"""Lines to servers that do what few others do: see `inside.oddities`.

``EGRESSD_LINES=long pytest tests/vm/test_odd_servers_vm.py -k 'echoes or closed'`` runs some of
them; without that in the environment there are the short ones only.
"""

from __future__ import annotations

import os

import pytest

from tests.vm import verdicts
from tests.vm.inside.oddities import SCENARIOS, SHORT
from tests.vm.verdicts import Boot

IS_LONG = os.environ.get("EGRESSD_LINES") == "long"
TIMEOUT_S = 3600.0

pytestmark = [*verdicts.MARKS, pytest.mark.timeout(TIMEOUT_S + 60)]


@pytest.fixture(scope="module")
def booted(request: pytest.FixtureRequest) -> Boot:
    """All scenarios that are to be tested, in one boot."""
    return verdicts.booted(request, "tests.vm.inside.oddities", timeout_s=TIMEOUT_S)


@pytest.mark.parametrize(
    "name", [scenario.__name__ for scenario in (SCENARIOS if IS_LONG else SHORT)]
)
def test_a_scenario(name: str, booted: Boot) -> None:
    booted.check(name)
