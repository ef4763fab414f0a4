"""The limit of pipes, on a file that stands for the kernel's."""

from pathlib import Path

import pytest

from egressd.netd.engine.pipes import make_room


@pytest.mark.parametrize(
    ("before", "after"), [("16384\n", "250000"), ("300000\n", "300000"), ("0\n", "0")]
)
def test_room_is_only_ever_made(tmp_path: Path, before: str, after: str) -> None:
    limit = tmp_path / "pipe-user-pages-soft"
    limit.write_text(before)
    make_room(limit, 1_000_000)
    assert limit.read_text().strip() == after


def test_a_kernel_that_will_not_is_left_alone(tmp_path: Path) -> None:
    make_room(tmp_path / "absent", 1_000_000)
    make_room(tmp_path, 1_000_000)
    assert list(tmp_path.iterdir()) == []
