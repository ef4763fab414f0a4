"""Runs the lines' machine beside the other tests, where it would take a core to itself for minutes.

An emulated machine's clock counts its instructions, so nothing in it notices how busy this one
is. One with KVM would, and waits for its turn.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec
import pytest

from tests.vm import boot
from tests.vm.inside.suite import Verdict

TIMEOUT_S: Final = 1500.0


class LinesMachine:
    """One boot in which the chosen scenarios run; a thread waits for it."""

    def __init__(self, chosen: Sequence[str]) -> None:
        self.said = ""
        self._chosen = chosen
        self._shared = Path(tempfile.mkdtemp(prefix="egressd-vm-"))
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def start(self) -> None:
        """Boot, unless it was booted."""
        if self._thread.ident is None:
            self._thread.start()

    def verdicts(self) -> dict[str, Verdict]:
        """How each scenario went; empty when none was run, and `said` tells why."""
        self._thread.join()
        results = self._shared / "results.json"
        if not results.exists():
            return {}
        return msgspec.json.decode(results.read_bytes(), type=dict[str, Verdict])

    def close(self) -> None:
        """Switch it off."""
        self._stopping.set()
        if self._thread.ident is not None:
            self._thread.join()
        shutil.rmtree(self._shared)

    def _run(self) -> None:
        try:
            self.said = boot.run(
                "tests.vm.inside.main",
                self._shared,
                *self._chosen,
                timeout_s=TIMEOUT_S,
                stopping=self._stopping,
            )
        except subprocess.TimeoutExpired:
            self.said = "the machine did not end in time"
        except (OSError, subprocess.CalledProcessError) as error:
            self.said = str(error)


_MACHINE = pytest.StashKey[LinesMachine]()


def pytest_collection_finish(session: pytest.Session) -> None:
    """Boot the machine as soon as it is known what to run in it."""
    chosen = [
        str(item.callspec.params["name"])
        for item in session.items
        if isinstance(item, pytest.Function) and "lines_machine" in item.fixturenames
    ]
    if chosen and not session.config.option.collectonly:
        machine = session.config.stash[_MACHINE] = LinesMachine(chosen)
        if boot.is_emulated() and not list(boot.missing()):
            machine.start()


def pytest_unconfigure(config: pytest.Config) -> None:
    """Whatever became of the tests, no machine stays."""
    if _MACHINE in config.stash:
        config.stash[_MACHINE].close()


@pytest.fixture(scope="session")
def lines_machine(pytestconfig: pytest.Config) -> LinesMachine:
    """The machine, booted."""
    boot.kernel()
    machine = pytestconfig.stash[_MACHINE]
    machine.start()
    return machine
