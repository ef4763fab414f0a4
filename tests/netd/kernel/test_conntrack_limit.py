"""The warnings before connection tracking is full, on files that stand for the kernel's."""

from pathlib import Path

import pytest

from egressd.netd.kernel.conntrack import crowding, why_full


@pytest.mark.parametrize(
    ("tracked", "limit", "is_told", "is_full"),
    [
        (94, 100, False, False),
        (95, 100, True, False),
        (998, 1000, True, False),
        (999, 1000, True, True),
        (100, 100, True, True),
        (100, 0, False, False),
    ],
)
def test_a_warning_precedes_a_full_connection_table(
    tmp_path: Path, tracked: int, limit: int, is_told: bool, is_full: bool
) -> None:
    (tmp_path / "nf_conntrack_count").write_text(f"{tracked}\n")
    (tmp_path / "nf_conntrack_max").write_text(f"{limit}\n")
    told = crowding(tmp_path)
    assert bool(told) == is_told
    assert bool(why_full(tmp_path)) == is_full
    assert not told or (str(tracked) in told[0] and str(limit) in told[0])


def test_without_connection_tracking_there_is_no_warning(tmp_path: Path) -> None:
    assert crowding(tmp_path) == ()
    assert why_full(tmp_path) == ""
