"""The two distributions of a checkout: egressd, which devices get, and its lab."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import pytest

ROOT = Path(__file__).resolve().parents[1]
SOURCES = ("src", "pyproject.toml", "README.md", "LICENSE")
BUILD = "import sys; from setuptools import build_meta; build_meta.build_wheel(sys.argv[1])"


@pytest.fixture(scope="module")
def names(tmp_path_factory: pytest.TempPathFactory) -> dict[str, set[str]]:
    """Build each distribution, and return the names of the files in its wheel."""
    found = {}
    for name, folder in (("egressd", ROOT), ("egressd_lab", ROOT / "lab")):
        checkout, wheels = (tmp_path_factory.mktemp(name) for _ in range(2))
        for source in SOURCES:
            copy(folder / source, checkout / source)
        argv = [sys.executable, "-c", BUILD, str(wheels)]
        done = subprocess.run(argv, cwd=checkout, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        (wheel,) = wheels.glob(f"{name}-*.whl")
        with ZipFile(wheel) as archive:
            found[name] = {*archive.namelist()}
    return found


def copy(source: Path, target: Path) -> None:
    """Copy a file or a folder, if it is there, without what importing and installing made."""
    made_here = shutil.ignore_patterns("__pycache__", "*.egg-info")
    if source.is_dir():
        shutil.copytree(source, target, ignore=made_here)
    elif source.exists():
        shutil.copy(source, target)


def packages(names: set[str]) -> set[str]:
    return {name.partition("/")[0] for name in names if ".dist-info/" not in name}


def test_the_wheel_of_egressd_has_what_a_device_needs_and_no_lab(
    names: dict[str, set[str]],
) -> None:
    found = names["egressd"]
    assert packages(found) == {"egressd"}
    assert not [name for name in found if "lab" in Path(name).parts]
    modules = {str(path.relative_to(ROOT / "src")) for path in (ROOT / "src").rglob("*.py")}
    assert {name for name in found if name.endswith(".py")} == modules
    assert found >= {"egressd/py.typed", "egressd/api/docs/page.css"}
    assert found >= {"egressd/console/page/index.html"}
    assert [name for name in found if name.startswith("egressd/console/page/assets/")]


def test_the_wheel_of_the_lab_has_the_lab_only(names: dict[str, set[str]]) -> None:
    found = names["egressd_lab"]
    assert packages(found) == {"egressd_lab"}
    lab = ROOT / "lab" / "src"
    modules = {str(path.relative_to(lab)) for path in lab.rglob("*.py")}
    assert {name for name in found if name.endswith(".py")} == modules
