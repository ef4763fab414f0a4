"""Memory of processes, this one among them."""

import mmap
import multiprocessing
import os
from pathlib import Path

import pytest

from egressd.netd.kernel.memory import available, resident

MIB = 1 << 20


def test_the_resident_memory_includes_allocations() -> None:
    before = resident([os.getpid()])
    # Not of the heap, which may have room that tests before have freed.
    with mmap.mmap(-1, 32 * MIB) as held:
        for page in range(0, 32 * MIB, mmap.PAGESIZE):
            held[page] = 1
        after = resident([os.getpid()])
    assert before > MIB
    assert 30 * MIB < after - before < 40 * MIB


def test_shared_pages_count_once() -> None:
    held = bytearray(os.urandom(1024)) * (32 * 1024)
    alone = resident([os.getpid()])
    context = multiprocessing.get_context("fork")
    ready, done = context.Event(), context.Event()

    def wait() -> None:
        ready.set()
        done.wait()

    child = context.Process(target=wait)
    child.start()
    try:
        assert ready.wait(10)
        assert child.pid is not None
        together = resident([os.getpid(), child.pid])
    finally:
        done.set()
        child.join()
    assert together < alone + 16 * MIB
    assert len(held) == 32 * MIB


def test_a_process_that_ended_holds_nothing() -> None:
    assert resident([]) == 0
    assert resident([2**22 + 1]) == 0


@pytest.mark.parametrize(
    ("groups", "root", "name"),
    [
        ("0::/box/netd.service\n", "", "memory.max"),
        ("4:memory:/box/netd.service\n0::/\n", "memory", "memory.limit_in_bytes"),
    ],
)
def test_available_memory_is_that_of_the_narrowest_control_group(
    tmp_path: Path, groups: str, root: str, name: str
) -> None:
    own = tmp_path / root / "box" / "netd.service"
    own.mkdir(parents=True)
    told = tmp_path / "groups"
    told.write_text(groups)
    machine = available(told, tmp_path)
    assert machine > 64 * MIB
    (own / name).write_text("max\n")
    assert available(told, tmp_path) == machine
    (own.parent / name).write_text(f"{32 * MIB}\n")
    assert available(told, tmp_path) == 32 * MIB
    (own / name).write_text(f"{16 * MIB}\n")
    assert available(told, tmp_path) == 16 * MIB
