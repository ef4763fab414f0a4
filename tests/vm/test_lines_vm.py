"""Lines by real daemons, against real servers, on a real Debian kernel: see `inside.main`.

The short scenarios of odd servers (`inside.oddities`) are run in the same boot. To run some of all:
``pytest tests/vm/test_lines_vm.py -k 'charon or wan'``. With ``EGRESSD_LINES=long`` in the
environment there are those, too, that take long.
"""

from __future__ import annotations

import os
from typing import Final

import pytest

from tests.vm import verdicts
from tests.vm.inside.main import ALL, LONG
from tests.vm.inside.makes import left_out
from tests.vm.verdicts import Boot

IS_LONG = os.environ.get("EGRESSD_LINES") == "long"
LEFT_OUT: Final = left_out()
CHOSEN = [
    pytest.param(name, marks=pytest.mark.skip(LEFT_OUT[name])) if name in LEFT_OUT else name
    for name in (scenario.__name__ for scenario in ALL if IS_LONG or scenario not in LONG)
]
pytestmark = verdicts.marks()


@pytest.fixture(scope="module")
def booted(request: pytest.FixtureRequest) -> Boot:
    """Run all scenarios that are to be tested, in one boot."""
    return verdicts.booted(request, "tests.vm.inside.main")


@pytest.mark.parametrize("name", CHOSEN)
def test_a_scenario_succeeds(name: str, booted: Boot) -> None:
    booted.check(name)
