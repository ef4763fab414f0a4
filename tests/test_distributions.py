"""The two distributions of a checkout: egressd, which devices get, and its lab.

They are built as from a clean clone: of the files that git tracks or would track, without what
earlier builds left, and without the network.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path
from zipfile import ZipFile

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[1]
PAGE = "src/egressd/console/page"
ARCHIVE = "import sys; from setuptools import build_meta; build_meta.build_sdist(sys.argv[1])"

Built = subprocess.CompletedProcess[str]


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a copy of the checkout as a clean clone has it, without the page."""
    folder: Path = tmp_path_factory.mktemp("clone")
    listing = ["git", "-c", "safe.directory=*", "ls-files", "-z", "--cached", "--others"]
    listing += [
        "--exclude-standard",
        "setup.py",
        "pyproject.toml",
        "README.md",
        "LICENSE",
        "NOTICE",
    ]
    listed = subprocess.run(
        [*listing, "src", "lab", "packaging"], cwd=ROOT, capture_output=True, check=True
    )
    for name in os.fsdecode(listed.stdout).split("\0"):
        if name and (ROOT / name).exists():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / name)
    return folder


@pytest.fixture(scope="module")
def whole(clone: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a clone in which script/setup has built the page."""
    folder: Path = tmp_path_factory.mktemp("whole") / "clone"
    shutil.copytree(clone, folder)
    shutil.copytree(ROOT / PAGE, folder / PAGE)
    return folder


def build(folder: Path, wheels: Path) -> Built:
    argv = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", "wheel"]
    argv += ["--no-deps", "--no-build-isolation", "--no-index", "--wheel-dir", str(wheels), "."]
    return subprocess.run(argv, cwd=folder, capture_output=True, text=True, check=False)


def built(folder: Path, wheels: Path) -> set[str]:
    """Return the names of the files in the wheel of a folder."""
    done = build(folder, wheels)
    assert done.returncode == 0, done.stderr
    (wheel,) = wheels.iterdir()
    with ZipFile(wheel) as archive:
        return {*archive.namelist()}


@pytest.fixture(scope="module")
def names(whole: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, set[str]]:
    """Return the names of the files in the wheel of each distribution."""
    return {
        name: built(whole / folder, tmp_path_factory.mktemp(name))
        for name, folder in (("egressd", "."), ("egressd_lab", "lab"))
    }


def packages(names: set[str]) -> set[str]:
    found = {name.partition("/")[0] for name in names}
    return {name for name in found if not name.endswith((".dist-info", ".data"))}


def test_the_wheel_of_egressd_has_what_a_device_needs_and_no_lab(
    names: dict[str, set[str]],
) -> None:
    found = names["egressd"]
    assert packages(found) == {"egressd"}
    assert not [name for name in found if "lab" in Path(name).parts]
    modules = {str(path.relative_to(ROOT / "src")) for path in (ROOT / "src").rglob("*.py")}
    assert {name for name in found if name.endswith(".py")} == modules
    assert found >= {"egressd/py.typed", "egressd/api/docs/page.css"}


def test_the_wheel_has_the_whole_page(names: dict[str, set[str]]) -> None:
    page = {path.relative_to(ROOT / "src") for path in (ROOT / PAGE).rglob("*") if path.is_file()}
    assert [path for path in page if path.parent.name == "assets"]
    assert {str(path) for path in page} <= names["egressd"]


def test_the_wheel_has_units_guard_and_users(names: dict[str, set[str]]) -> None:
    files = (*(ROOT / "packaging/systemd").iterdir(), *(ROOT / "packaging").glob("*.nft"))
    wanted = {path.relative_to(ROOT / "packaging").as_posix() for path in files} | {"sysusers.conf"}
    assert len(wanted) == 8
    place = ".data/data/share/egressd/"
    shared = (name.partition(place) for name in names["egressd"] if place in name)
    assert {name for _, _, name in shared} == wanted


def test_the_wheel_of_the_lab_has_the_lab_only(names: dict[str, set[str]]) -> None:
    found = names["egressd_lab"]
    assert packages(found) == {"egressd_lab"}
    lab = ROOT / "lab" / "src"
    modules = {str(path.relative_to(lab)) for path in lab.rglob("*.py")}
    assert {name for name in found if name.endswith(".py")} == modules


def test_a_clone_without_the_page_builds_no_wheel(clone: Path, tmp_path: Path) -> None:
    done = build(clone, tmp_path)
    assert done.returncode
    assert f"{PAGE} has no index.html. It is not in git: `script/setup` builds it." in done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("lost", "said"),
    [
        (f"{PAGE}/licenses.txt", f"{PAGE} has no licenses.txt"),
        (f"{PAGE}/assets/index-*.js", f"{PAGE} has no assets/index-"),
        ("packaging/systemd/egressd-block.service", "egressd-block.service is missing"),
        ("packaging/guard.nft", "packaging/guard.nft is missing"),
    ],
)
def test_a_wheel_that_would_lack_files_is_refused(
    whole: Path, lost: str, said: str, tmp_path: Path
) -> None:
    shutil.copytree(whole, tmp_path / "clone")
    (file,) = (tmp_path / "clone").glob(lost)
    file.unlink()
    done = build(tmp_path / "clone", tmp_path / "wheels")
    assert done.returncode
    assert said in done.stderr
    assert not (tmp_path / "wheels").exists() or list((tmp_path / "wheels").iterdir()) == []


def test_files_of_an_earlier_build_stay_out(
    whole: Path, names: dict[str, set[str]], tmp_path: Path
) -> None:
    shutil.copytree(whole, tmp_path / "clone")
    earlier = tmp_path / "clone/build/lib/egressd/console/page/assets/index-old.js"
    earlier.parent.mkdir(parents=True, exist_ok=True)
    earlier.touch()
    assert built(tmp_path / "clone", tmp_path / "wheels") == names["egressd"]


@pytest.fixture
def archive(whole: Path, tmp_path: Path) -> Callable[[str], Built]:
    """Return a builder of the source archive, for a checkout that has lost a file or none."""

    def build_archive(lost: str) -> Built:
        shutil.copytree(whole, tmp_path / "clone")
        if lost:
            (tmp_path / "clone" / lost).unlink()
        argv = [sys.executable, "-c", ARCHIVE, str(tmp_path / "archive")]
        return subprocess.run(
            argv, cwd=tmp_path / "clone", capture_output=True, text=True, check=False
        )

    return build_archive


def test_the_source_archive_builds_the_same_wheel(
    archive: Callable[[str], Built], names: dict[str, set[str]], tmp_path: Path
) -> None:
    """`python -m build` makes the archive first, and the wheel of it."""
    done = archive("")
    assert done.returncode == 0, done.stderr
    (file,) = (tmp_path / "archive").iterdir()
    with tarfile.open(file) as opened:
        opened.extractall(tmp_path / "unpacked", filter="data")
    (folder,) = (tmp_path / "unpacked").iterdir()
    assert built(folder, tmp_path / "wheels") == names["egressd"]


def test_a_source_archive_without_the_page_is_refused(archive: Callable[[str], Built]) -> None:
    done = archive(f"{PAGE}/index.html")
    assert done.returncode
    assert "`script/setup` builds it" in done.stderr
