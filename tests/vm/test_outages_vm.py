"""Many lines through outages: see `inside.outages`. With ``EGRESSD_LINES=long`` in the environment.

``EGRESSD_LINES=long script/test tests/vm/test_outages_vm.py`` takes most of an hour without KVM.
"""

from __future__ import annotations

import os

import pytest

from tests.vm import verdicts
from tests.vm.inside.outages import SCENARIOS
from tests.vm.verdicts import Boot

SECONDS = 2000
TIMEOUT_S = 7200.0

pytestmark = [
    *verdicts.marks(TIMEOUT_S),
    pytest.mark.skipif(
        os.environ.get("EGRESSD_LINES") != "long", reason="it takes most of an hour"
    ),
]


@pytest.fixture(scope="module")
def booted(request: pytest.FixtureRequest) -> Boot:
    """All scenarios that are to be tested, in one boot."""
    module, seconds = "tests.vm.inside.outages", str(SECONDS)
    return verdicts.booted(request, module, seconds, timeout_s=TIMEOUT_S, is_leaping=False)


@pytest.mark.parametrize("name", [scenario.__name__ for scenario in SCENARIOS])
def test_a_scenario(name: str, booted: Boot) -> None:
    booted.check(name)
