"""Lines by real daemons, against real servers, on a real Debian kernel: see `inside.main`.

To run some of them: ``pytest tests/vm/test_lines_vm.py -k 'charon or wan'``. With
``EGRESSD_LINES=long`` in the environment, scenarios that take long run too.
"""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import msgspec
import pytest

from tests.vm import boot
from tests.vm.inside.main import ALL, LONG
from tests.vm.inside.makes import left_out
from tests.vm.inside.suite import Verdict

TIMEOUT_S: Final = 1500.0
IS_LONG = os.environ.get("EGRESSD_LINES") == "long"
LEFT_OUT: Final = left_out()
CHOSEN = [
    pytest.param(name, marks=pytest.mark.skip(LEFT_OUT[name])) if name in LEFT_OUT else name
    for name in (scenario.__name__ for scenario in ALL if IS_LONG or scenario not in LONG)
]

# An emulated machine's clock counts its instructions, so this machine's load does not affect its
# times. It would affect a machine with KVM.
pytestmark = [
    pytest.mark.vm,
    pytest.mark.timeout(TIMEOUT_S + 60),
    *([] if boot.is_emulated() else [pytest.mark.alone]),
]


@dataclass(frozen=True)
class Boot:
    """One boot of the machine: its output, and the verdict of each scenario."""

    said: str
    verdicts: dict[str, Verdict]


@pytest.fixture(scope="module")
def booted(request: pytest.FixtureRequest) -> Boot:
    """Run all scenarios that are to be tested, in one boot."""
    boot.kernel()
    chosen = [
        str(item.callspec.params["name"])
        for item in request.session.items
        if isinstance(item, pytest.Function) and "booted" in item.fixturenames
    ]
    with TemporaryDirectory(prefix="egressd-vm-") as shared:
        try:
            said = boot.run("tests.vm.inside.main", Path(shared), *chosen, timeout_s=TIMEOUT_S)
        except subprocess.TimeoutExpired:
            said = "the machine did not end in time"
        results = Path(shared, "results.json")
        assert results.exists(), f"no scenario was run: {said}"
        verdicts = msgspec.json.decode(results.read_bytes(), type=dict[str, Verdict])
    print(said)
    return Boot(said, verdicts)


@pytest.mark.parametrize("name", CHOSEN)
def test_a_scenario_succeeds(name: str, booted: Boot) -> None:
    assert name in booted.verdicts, f"the machine ended before: {booted.said}"
    verdict = booted.verdicts[name]
    print(f"{name}: {verdict.took_s} s {verdict.figures}")
    assert not verdict.problem, verdict.problem
