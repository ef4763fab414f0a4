"""The versions that the package has put on a machine, and the record of a failed update."""

from __future__ import annotations

from pathlib import Path

import pytest

from egressd.app import update_record
from egressd.app.versions import InstalledVersions
from egressd.model.errors import Failed


@pytest.fixture
def home(tmp_path: Path) -> Path:
    for version in ("1.0.0+deb12", "1.1.0+deb12"):
        program = tmp_path / version / "bin" / "egressd"
        program.parent.mkdir(parents=True)
        program.touch()
    (tmp_path / "current").symlink_to("1.1.0+deb12")
    return tmp_path


def test_the_version_in_force_is_where_the_link_leads(home: Path) -> None:
    versions = InstalledVersions(home)
    assert versions.in_force() == "1.1.0+deb12"
    versions.put_in_force("1.0.0+deb12")
    assert versions.in_force() == "1.0.0+deb12"
    assert (home / "current" / "bin" / "egressd").exists()


def test_a_checkout_has_no_version_in_force(tmp_path: Path) -> None:
    assert InstalledVersions(tmp_path).in_force() is None


def test_a_change_that_was_interrupted_does_not_prevent_the_next(home: Path) -> None:
    (home / "current.new").symlink_to("nowhere")
    InstalledVersions(home).put_in_force("1.0.0+deb12")
    assert InstalledVersions(home).in_force() == "1.0.0+deb12"


def test_a_version_that_is_not_there_is_not_put_in_force(home: Path) -> None:
    with pytest.raises(Failed, match="does not have it"):
        InstalledVersions(home).put_in_force("2.0.0")
    assert InstalledVersions(home).in_force() == "1.1.0+deb12"


def test_a_failed_update_is_a_problem_until_one_succeeds(tmp_path: Path) -> None:
    assert update_record.problems(tmp_path) == ()
    update_record.leave(tmp_path, wanted="1.1.0", in_force="1.0.0", reason="it does not answer")
    (problem,) = update_record.problems(tmp_path)
    assert problem == (
        "the update to version 1.1.0 failed, and version 1.0.0 is in force: it does not answer"
    )
    assert problem.code == "update-failed"
    assert (tmp_path / "update.json").stat().st_mode & 0o777 == 0o644
    update_record.withdraw(tmp_path)
    update_record.withdraw(tmp_path)
    assert update_record.problems(tmp_path) == ()


@pytest.mark.parametrize(
    "content",
    ["", "{}", "[]", '{"wanted": 1', "\udcff", '{"wanted": 1, "in_force": 2, "reason": 3}'],
)
def test_a_damaged_record_is_no_problem(content: str, tmp_path: Path) -> None:
    (tmp_path / "update.json").write_bytes(content.encode(errors="surrogateescape"))
    assert update_record.problems(tmp_path) == ()
