"""One boot of the machine for the scenarios of a module, and their verdicts."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import msgspec
import pytest

from tests.vm import boot
from tests.vm.inside.suite import Verdict

TIMEOUT_S: Final = 1500.0
"""Seconds of processor time, if the machine is emulated: some four times what is needed."""
_SHARE: Final = 8
"""The machine is given a share of a processor that is not less than one in so many."""


def marks(timeout_s: float = TIMEOUT_S) -> list[pytest.MarkDecorator]:
    """Return the marks of the tests of a module whose machine may run for so many seconds, of
    processor time if it is emulated.

    An emulated machine's clock counts its instructions, so nothing in it notices how busy this one
    is. One with KVM would.
    """
    alone = [] if boot.is_emulated() else [pytest.mark.alone]
    return [pytest.mark.vm, pytest.mark.timeout(_SHARE * timeout_s), *alone]


@dataclass(frozen=True)
class Boot:
    """One boot of the machine: what it said, and how each scenario went."""

    said: str
    verdicts: dict[str, Verdict]

    def check(self, name: str) -> None:
        """Fail unless that scenario went well."""
        assert name in self.verdicts, f"the machine ended before: {self.said}"
        verdict = self.verdicts[name]
        print(f"{name}: {verdict.took_s} s {verdict.figures}")
        assert not verdict.problem, verdict.problem


def booted(
    request: pytest.FixtureRequest,
    module: str,
    *arguments: str,
    timeout_s: float = TIMEOUT_S,
    is_leaping: bool = True,
) -> Boot:
    """Run the scenarios that the tests of `request`'s module are parametrized with, in one boot.

    `arguments` come before their names. What measures times needs a clock that is not `is_leaping`:
    by a leaping one, a daemon's start takes the longer the busier this machine is.
    """
    boot.kernel()
    chosen = [
        str(item.callspec.params["name"])
        for item in request.session.items
        if isinstance(item, pytest.Function)
        and item.module is request.module
        and "booted" in item.fixturenames
    ]
    with TemporaryDirectory(prefix="egressd-vm-") as shared:
        try:
            said = boot.run(
                module,
                Path(shared),
                *arguments,
                *chosen,
                timeout_s=timeout_s,
                is_leaping=is_leaping,
            )
        except subprocess.TimeoutExpired:
            said = "the machine did not end in time"
        results = Path(shared, "results.json")
        assert results.exists(), f"no scenario was run: {said}"
        verdicts = msgspec.json.decode(results.read_bytes(), type=dict[str, Verdict])
    print(said)
    return Boot(said, verdicts)
