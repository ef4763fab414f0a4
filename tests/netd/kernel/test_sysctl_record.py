"""The record of parameters before they are changed, on a directory that stands for /proc/sys."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog

from egressd.netd.kernel import sysctl, sysctl_record
from egressd.netd.kernel.sysctl_record import FORWARD, RESERVED_PORTS

ALL = "net/ipv4/conf/all/accept_redirects"
LAN = "net/ipv4/conf/lan0/forwarding"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "sys"
    values = {
        FORWARD: "0",
        ALL: "0",
        "net/ipv4/conf/all/forwarding": "0",
        LAN: "1",
        RESERVED_PORTS: "",
        "limit": "10",
        "range": "1\t2",
    }
    for name, value in values.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(f"{value}\n")
    return root


@pytest.fixture
def record(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "netd" / "sysctls"
    sysctl.keep_record(path)
    yield path
    sysctl._records.clear()


def test_the_first_value_counts_also_for_another_process(root: Path, record: Path) -> None:
    sysctl.write({"range": "3 4"}, root)
    sysctl.keep_record(record)
    (root / "range").write_text("5 6")
    sysctl.write({"range": "3 4"}, root)
    assert sysctl_record.read(record) == {"range": "1\t2"}
    assert sysctl_record.restore(record, root) == []
    assert (root / "range").read_text() == "1\t2"
    assert sysctl_record.restore(record, root) == []


def test_values_that_stay_are_not_recorded(root: Path, record: Path) -> None:
    sysctl.write({"range": "1 2"}, root)
    sysctl.make_room({"limit": 5}, root)
    assert not record.exists()
    sysctl.make_room({"limit": 50}, root)
    assert sysctl_record.read(record) == {"limit": "10"}


def test_effects_of_forwarding_are_put_back_after_it(root: Path, record: Path) -> None:
    sysctl.write({FORWARD: "1"}, root)
    assert [*sysctl_record.read(record).items()] == [(FORWARD, "0"), (ALL, "0"), (LAN, "1")]


def test_a_value_is_recorded_before_it_is_changed(
    root: Path, record: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lose(*_: object) -> None:
        raise KeyboardInterrupt  # a power failure

    monkeypatch.setattr(Path, "write_text", lose)
    with pytest.raises(KeyboardInterrupt):
        sysctl.write({"limit": "20"}, root)
    assert sysctl_record.read(record) == {"limit": "10"}


def test_a_full_disk_stops_no_change_and_is_tried_again(root: Path, record: Path) -> None:
    record.parent.parent.joinpath("netd").touch()
    with structlog.testing.capture_logs() as logs:
        for value in ("20", "30"):
            sysctl.write({"limit": value}, root)
            assert (root / "limit").read_text() == value
    assert [line["event"] for line in logs] == ["cannot record kernel parameters"]
    record.parent.unlink()
    sysctl.write({"limit": "40"}, root)
    assert sysctl_record.read(record) == {"limit": "10"}


@pytest.mark.parametrize("content", ["", "another boot net:[1]\nlimit\t10\n", "\0\n", "x"])
def test_the_record_of_another_boot_is_of_no_use(root: Path, record: Path, content: str) -> None:
    record.parent.mkdir()
    record.write_text(content)
    assert sysctl_record.restore(record, root) == []
    sysctl.keep_record(record)
    sysctl.write({"range": "3 4"}, root)
    assert sysctl_record.read(record) == {"range": "1\t2"}


def test_a_refused_value_is_reported_and_the_rest_is_put_back(root: Path, record: Path) -> None:
    sysctl.write({"limit": "20", "range": "3 4"}, root)
    (root / "limit").unlink()
    (root / "limit").mkdir()
    (problem,) = sysctl_record.restore(record, root)
    assert problem == "could not set limit back to 10: Is a directory"
    assert (root / "range").read_text() == "1\t2"
    (root / "limit").rmdir()
    assert sysctl_record.restore(record, root) == []
