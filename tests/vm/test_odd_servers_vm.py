"""Lines to servers that do what few others do, for minutes each: see `inside.oddities`.

``EGRESSD_LINES=long pytest tests/vm/test_odd_servers_vm.py -k 'echoes or closed'`` runs some of
them. The short ones are in `test_lines_vm`.
"""

from __future__ import annotations

import os

import pytest

from tests.vm import verdicts
from tests.vm.inside.oddities import LONG
from tests.vm.verdicts import Boot

TIMEOUT_S = 7200.0

pytestmark = [
    *verdicts.marks(TIMEOUT_S),
    pytest.mark.skipif(os.environ.get("EGRESSD_LINES") != "long", reason="it takes half an hour"),
]


@pytest.fixture(scope="module")
def booted(request: pytest.FixtureRequest) -> Boot:
    """All scenarios that are to be tested, in one boot."""
    return verdicts.booted(request, "tests.vm.inside.oddities", timeout_s=TIMEOUT_S)


@pytest.mark.parametrize("name", [scenario.__name__ for scenario in LONG])
def test_a_scenario(name: str, booted: Boot) -> None:
    booted.check(name)
