"""The memory of the running service: no process keeps libraries that it does not use."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from egressd_lab.lab import Lab
from egressd_lab.spec import LabSpec

pytestmark = pytest.mark.lab

UNUSED = {
    "supervisor": ("pydantic_core", "msgspec", "_ssl", "_sqlite3", "_asyncio", "_datetime"),
    "egressd.app netd": (
        "pydantic_core",
        "_ssl",
        "greenlet",
        "cryptography",
        "_argon2",
        "uvloop",
        "yaml",
    ),
    "egressd.app api": ("cryptography", "greenlet", "singbox"),
}
"""Process, by a part of its command line -> libraries that it has no use for: parts of the paths of
their compiled modules, which the kernel lists in the process's maps."""

USED = {
    "supervisor": "select",
    "egressd.app netd": "msgspec",
    "egressd.app api": "pydantic_core",
}
"""The same -> a library that it uses, so that the maps are known to name libraries."""


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    with Lab(LabSpec(nodes=())) as lab:
        lab.start_egressd()
        yield lab


def libraries(lab: Lab, part: str) -> list[str]:
    """Return the paths of a process's compiled modules (proc_pid_maps(5))."""
    device = lab.device
    pid = device.program.pid if part == "supervisor" else device.pids(part)[0]
    return re.findall(r"(/\S+\.so\S*)", Path(f"/proc/{pid}/maps").read_text())


@pytest.mark.parametrize("part", UNUSED)
def test_no_process_loads_what_it_does_not_use(lab: Lab, part: str) -> None:
    found = libraries(lab, part)
    assert [path for path in found if USED[part] in path]
    assert [path for path in found for name in UNUSED[part] if f"/{name}" in path] == []


def test_the_supervisor_takes_the_place_of_the_command(lab: Lab) -> None:
    command = Path(f"/proc/{lab.device.program.pid}/cmdline").read_text().split("\0")
    assert any(argument.endswith("/app/supervise.py") for argument in command)
