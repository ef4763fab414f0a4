"""Lines by real daemons, against real servers, on a real Debian kernel: see `inside.main`.

To run some of them: ``pytest tests/vm/test_lines_vm.py -k 'charon or wan'``. With
``EGRESSD_LINES=long`` in the environment there are those, too, that take long.
"""

from __future__ import annotations

import os

import pytest

from tests.vm.conftest import TIMEOUT_S, LinesMachine
from tests.vm.inside.main import ALL, LONG
from tests.vm.inside.suite import Verdict

IS_LONG = os.environ.get("EGRESSD_LINES") == "long"
CHOSEN = [scenario.__name__ for scenario in ALL if IS_LONG or scenario not in LONG]

pytestmark = [pytest.mark.vm, pytest.mark.timeout(TIMEOUT_S + 60)]


@pytest.fixture(scope="module")
def verdicts(lines_machine: LinesMachine) -> dict[str, Verdict]:
    """How each scenario that is to be tested went, in one VM."""
    found = lines_machine.verdicts()
    print(lines_machine.said)
    assert found, f"no scenario was run: {lines_machine.said}"
    return found


@pytest.mark.parametrize("name", CHOSEN)
def test_a_scenario(name: str, lines_machine: LinesMachine, verdicts: dict[str, Verdict]) -> None:
    assert name in verdicts, f"the machine ended before: {lines_machine.said}"
    verdict = verdicts[name]
    print(f"{name}: {verdict.took_s} s {verdict.figures}")
    assert not verdict.problem, verdict.problem
