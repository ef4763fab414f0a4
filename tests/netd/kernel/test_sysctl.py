"""Writing parameters, on a directory that stands for /proc/sys."""

from pathlib import Path

import pytest

from egressd.netd.kernel.sysctl import Written, make_room, write


def test_only_differing_values_are_written(tmp_path: Path) -> None:
    (tmp_path / "same").write_text("1\n")
    (tmp_path / "range").write_text("32768\t60999\n")
    (tmp_path / "other").write_text("0\n")
    wanted = {"same": "1", "range": "32768 60999", "other": "1", "absent": "1"}
    assert write(wanted, tmp_path) == Written({"other": "0"}, ())
    assert (tmp_path / "other").read_text() == "1"
    assert (tmp_path / "range").read_text() == "32768\t60999\n"
    assert not (tmp_path / "absent").exists()
    assert write(wanted, tmp_path) == Written({}, ())


def test_an_unwritable_parameter_is_reported(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    assert write({"folder": "1"}, tmp_path).problems == (
        "could not set folder to 1: Is a directory",
    )


@pytest.mark.parametrize(
    ("before", "after"), [("1024\n", "4096"), ("300000\n", "300000\n"), ("0\n", "0\n")]
)
def test_a_limit_is_raised_and_never_lowered(tmp_path: Path, before: str, after: str) -> None:
    (tmp_path / "limit").write_text(before)
    make_room({"limit": 4096}, tmp_path)
    assert (tmp_path / "limit").read_text() == after


def test_limits_that_cannot_be_raised_are_skipped(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "limit").write_text("1")
    make_room({"absent": 1, "folder": 1, "limit": 2}, tmp_path)
    assert (tmp_path / "limit").read_text() == "2"
    assert not (tmp_path / "absent").exists()
