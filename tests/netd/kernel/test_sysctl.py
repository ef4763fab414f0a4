"""Writing parameters, on a directory that stands for /proc/sys."""

from pathlib import Path

from egressd.netd.kernel.sysctl import Written, write


def test_only_what_differs_is_written(tmp_path: Path) -> None:
    (tmp_path / "same").write_text("1\n")
    (tmp_path / "range").write_text("32768\t60999\n")
    (tmp_path / "other").write_text("0\n")
    wanted = {"same": "1", "range": "32768 60999", "other": "1", "absent": "1"}
    assert write(wanted, tmp_path) == Written({"other": "0"}, ())
    assert (tmp_path / "other").read_text() == "1"
    assert (tmp_path / "range").read_text() == "32768\t60999\n"
    assert not (tmp_path / "absent").exists()
    assert write(wanted, tmp_path) == Written({}, ())


def test_what_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    assert write({"folder": "1"}, tmp_path).problems == (
        "could not set folder to 1: Is a directory",
    )
