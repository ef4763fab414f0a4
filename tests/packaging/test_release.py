"""script/release, in a checkout of its own."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from egressd import __version__

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parent.parent.parent
FILES = ("script/release", "src/egressd/__init__.py", "pyproject.toml", "CHANGELOG.md")


def git(folder: Path, *arguments: str) -> str:
    author = ("-c", "user.name=T", "-c", "user.email=t@example.org")
    done = subprocess.run(
        ["git", *author, *arguments], cwd=folder, capture_output=True, text=True, check=True
    )
    return done.stdout


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Return a repository with the files that a release changes."""
    for name in FILES:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes((ROOT / name).read_bytes())
    changelog = tmp_path / "CHANGELOG.md"
    changelog.write_text("# Changelog\n\n## [Unreleased]\n\n- New.\n\n## [0.0.1] - 2026-01-02\n")
    git(tmp_path, "init", "--quiet")
    git(tmp_path, "config", "user.name", "T")
    git(tmp_path, "config", "user.email", "t@example.org")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "--quiet", "--message", "first")
    return tmp_path


def release(folder: Path, version: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["python3", folder / "script/release", version], capture_output=True, text=True, check=False
    )


def test_a_release_sets_version_changelog_and_tag(checkout: Path) -> None:
    done = release(checkout, "7.0.0")
    assert done.returncode == 0, done.stderr
    assert (checkout / "src/egressd/__init__.py").read_text() == '__version__ = "7.0.0"\n'
    own = (ROOT / "pyproject.toml").read_text()
    changed = own.replace(f'\nversion = "{__version__}"\n', '\nversion = "7.0.0"\n')
    assert (checkout / "pyproject.toml").read_text() == changed != own
    lines = (checkout / "CHANGELOG.md").read_text().splitlines()
    assert lines[2:6] == ["## [Unreleased]", "", lines[4], ""]
    assert lines[4].startswith("## [7.0.0] - 2")
    assert git(checkout, "tag", "--list") == "v7.0.0\n"
    assert git(checkout, "log", "-1", "--format=%s") == "release: 7.0.0\n"
    assert git(checkout, "status", "--porcelain") == ""


@pytest.mark.parametrize(
    ("version", "said"),
    [
        ("0.0.1", "higher than"),
        (__version__, "higher than"),
        ("7.0", "MAJOR.MINOR.PATCH"),
        ("7.0.0-rc1", "MAJOR.MINOR.PATCH"),
        ("07.0.0", "MAJOR.MINOR.PATCH"),
    ],
)
def test_a_version_that_is_none(checkout: Path, version: str, said: str) -> None:
    done = release(checkout, version)
    assert done.returncode == 1
    assert said in done.stderr
    assert git(checkout, "status", "--porcelain") == git(checkout, "tag", "--list") == ""


def test_a_release_without_entries_or_with_open_changes(checkout: Path) -> None:
    (checkout / "CHANGELOG.md").write_text("## [Unreleased]\n\n## [0.0.1] - 2026-01-02\n\n- Old.\n")
    assert "not committed" in release(checkout, "7.0.0").stderr
    git(checkout, "commit", "--quiet", "--all", "--message", "second")
    assert "nothing under [Unreleased]" in release(checkout, "7.0.0").stderr
    assert git(checkout, "tag", "--list") == ""
