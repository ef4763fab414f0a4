"""Lines by real daemons, against real servers, on a real Debian kernel: see `inside.main`.

To run some of them: ``pytest tests/vm/test_lines_vm.py -k 'charon or wan'``.
"""

from __future__ import annotations

import subprocess
from contextlib import suppress
from pathlib import Path

import msgspec
import pytest

from tests.vm import boot
from tests.vm.inside.main import ALL
from tests.vm.inside.suite import Verdict

pytestmark = [pytest.mark.vm, pytest.mark.timeout(960)]

TIMEOUT_S = 900.0


@pytest.fixture(scope="module")
def verdicts(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Verdict]:
    """How each scenario that is to be tested went, in one VM."""
    chosen = [
        str(item.callspec.params["name"])
        for item in request.session.items
        if isinstance(item, pytest.Function) and item.module is request.module
    ]
    shared = tmp_path_factory.mktemp("vm")
    boot.kernel()
    said = "the machine did not end in time"
    with suppress(subprocess.TimeoutExpired):
        said = boot.run("tests.vm.inside.main", shared, *chosen, timeout_s=TIMEOUT_S)
    print(said)
    results = Path(shared, "results.json")
    if not results.exists():
        pytest.fail(f"no scenario was run: {said}")
    return msgspec.json.decode(results.read_bytes(), type=dict[str, Verdict])


@pytest.mark.parametrize("name", [scenario.__name__ for scenario in ALL])
def test_a_scenario(name: str, verdicts: dict[str, Verdict]) -> None:
    assert name in verdicts, "the machine ended before"
    verdict = verdicts[name]
    print(f"{name}: {verdict.took_s} s {verdict.figures}")
    assert not verdict.problem, verdict.problem
