"""The number of open files of a process, this one among them."""

from __future__ import annotations

import os
import resource
from contextlib import ExitStack

import pytest

from egressd.netd.kernel import open_files


def test_open_files_are_counted_above_the_threshold() -> None:
    before = open_files.count(os.getpid(), 1)
    with ExitStack() as held:
        for _ in range(100):
            held.enter_context(open(os.devnull))
        assert 100 <= open_files.count(os.getpid(), 64) - before <= 101
    assert open_files.count(os.getpid(), 1 << 20) < 1 << 20


def test_the_limit_is_that_of_the_process() -> None:
    assert open_files.limit(os.getpid()) == resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def test_a_process_that_ended_is_an_error() -> None:
    with pytest.raises(OSError, match=r"."):
        open_files.count(2**22 + 1, 1)
