"""Lock files and the table of wheels (`script/pins`) agree, and serve every supported Python."""

from __future__ import annotations

import csv
import re
import tomllib
from collections import defaultdict
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.tags import Tag, compatible_tags, cpython_tags
from packaging.utils import canonicalize_name, parse_wheel_filename
from packaging.version import Version

ROOT = Path(__file__).parent.parent
REQUIREMENTS = ROOT / "requirements"
MACHINES = ("x86_64", "aarch64")
FOR_ANY_PYTHON = ("web.txt", "pins.txt")
OF_ITS_OWN = "pins.txt"
"""The lock file of a virtual environment of its own, which `script/pins` makes."""
FLOORS = REQUIREMENTS / "floors-3.11.txt"
"""The lock file of the lower bounds, which `script/test floors` installs."""
PER_PYTHON = sorted({*REQUIREMENTS.glob("*-3.*.txt")} - {FLOORS})
PYTHONS = sorted({path.stem.rpartition("-")[2] for path in PER_PYTHON})
GLIBC_MINOR = 36
"""Debian 12 has glibc 2.36, the oldest that egressd runs on."""

Pins = dict[tuple[str, str], set[str]]


def pins(lock: Path) -> Pins:
    """Return the SHA-256 digests that a lock file allows for each (package, version)."""
    found: Pins = {}
    for line in lock.read_text().splitlines():
        if pin := re.fullmatch(r"([\w.-]+)==(\S+) \\", line):
            digests = found.setdefault((canonicalize_name(pin[1]), pin[2]), set())
        elif digest := re.fullmatch(r" +--hash=sha256:([0-9a-f]{64})( \\)?", line):
            digests.add(digest[1])
        else:
            assert line.lstrip().startswith("#"), f"{lock.name}: {line}"
    return found


def table() -> dict[tuple[str, str, str, str], tuple[str, str]]:
    """Return (wheel, digest) for each (package, version, Python, processor)."""
    with (REQUIREMENTS / "wheels.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    found = {}
    for row in rows:
        pythons = [*PYTHONS, "3.14"] if row["python"] == "any" else [row["python"]]
        for python in pythons:
            for machine in MACHINES if row["machine"] == "any" else [row["machine"]]:
                key = row["package"], row["version"], python, machine
                assert key not in found, key
                found[key] = row["wheel"], row["sha256"]
    return found


def tags(python: str, machine: str) -> set[Tag]:
    """Return the tags of wheels that a Python on a processor accepts."""
    version = [int(part) for part in python.split(".")]
    platforms = [f"manylinux_2_{minor}_{machine}" for minor in range(5, GLIBC_MINOR + 1)]
    platforms += [f"{old}_{machine}" for old in ("manylinux2014", "manylinux1", "linux")]
    interpreter = f"cp{version[0]}{version[1]}"
    return {
        *cpython_tags(version, platforms=platforms),
        *compatible_tags(version, interpreter, platforms),
    }


def locks(python: str) -> list[Path]:
    """Return the lock files that a Python installs from."""
    own = [path for path in PER_PYTHON if path.stem.endswith(f"-{python}")]
    return own + [REQUIREMENTS / name for name in FOR_ANY_PYTHON]


def test_every_supported_python_has_lock_files() -> None:
    assert PYTHONS == ["3.11", "3.12", "3.13"]
    for python in PYTHONS:
        assert {path.stem.partition("-")[0] for path in locks(python)} == {
            "runtime", "dev", "bench", "web", "pins",
        }  # fmt: skip


def test_requires_python_matches_the_pinned_pythons() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    asked = SpecifierSet(project["requires-python"])
    minors = [f"3.{minor}" for minor in range(9, 20)]
    assert [python for python in minors if python in asked] == PYTHONS


def test_the_lab_needs_nothing_that_egressd_does_not_pin() -> None:
    """`script/setup` installs the lab without a lock file of its own."""
    egressd, lab = (
        tomllib.loads((ROOT / folder / "pyproject.toml").read_text())["project"]
        for folder in (".", "lab")
    )
    assert {*lab["dependencies"]} - {*egressd["dependencies"]} == {"egressd"}
    assert lab["requires-python"] == egressd["requires-python"]


def test_the_floors_are_the_lower_bounds_of_the_requirements() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    pinned = {name: Version(version) for name, version in pins(FLOORS)}
    for asked in map(Requirement, project["dependencies"]):
        (lowest,) = (part.version for part in asked.specifier if part.operator == ">=")
        assert pinned[canonicalize_name(asked.name)] == Version(lowest), asked


def test_tests_at_the_floors_run_with_the_programs_of_the_dev_lock_file() -> None:
    lines = (REQUIREMENTS / "floors.in").read_text().splitlines()
    names = {line for line in lines if not line.startswith("#")}
    floors, dev = (
        {pin for pin in pins(lock) if pin[0] in names}
        for lock in (FLOORS, REQUIREMENTS / "dev-3.11.txt")
    )
    assert floors == dev
    assert {name for name, _ in floors} == names


@pytest.mark.parametrize("python", PYTHONS)
@pytest.mark.parametrize("machine", MACHINES)
def test_every_pin_has_a_wheel_allowed_by_its_lock_file(python: str, machine: str) -> None:
    wheels, taken = table(), tags(python, machine)
    for lock in locks(python):
        found = pins(lock)
        assert found
        for (package, version), digests in found.items():
            wheel, digest = wheels[package, version, python, machine]
            assert digest in digests, (lock.name, package)
            name, wheel_version, _, wheel_tags = parse_wheel_filename(wheel)
            assert (name, str(wheel_version)) == (package, version)
            assert wheel_tags & taken, f"{wheel} is not for Python {python} on {machine}"


@pytest.mark.parametrize("python", PYTHONS)
def test_lock_files_of_a_python_agree_with_each_other(python: str) -> None:
    versions = defaultdict(set)
    for lock in locks(python):
        for package, version in pins(lock) if lock.name != OF_ITS_OWN else ():
            versions[package].add(version)
    assert {package: found for package, found in versions.items() if len(found) > 1} == {}


def test_the_table_has_rows_for_pins_only() -> None:
    pinned = {pin for python in PYTHONS for lock in locks(python) for pin in pins(lock)}
    assert {(package, version) for package, version, _, _ in table()} == pinned


def test_the_table_names_the_missing_wheels_of_the_next_python() -> None:
    lacking = {package for (package, _, python, _), (wheel, _) in table().items() if not wheel}
    assert {python for (_, _, python, _), (wheel, _) in table().items() if not wheel} == {"3.14"}
    assert lacking == {"immutables"}
