"""Memory of processes, this one among them."""

import multiprocessing
import os

from egressd.netd.kernel.memory import resident

MIB = 1 << 20


def test_a_process_holds_what_it_allocates() -> None:
    before = resident([os.getpid()])
    held = bytearray(os.urandom(1024)) * (32 * 1024)
    after = resident([os.getpid()])
    assert before > MIB
    assert 30 * MIB < after - before < 40 * MIB
    assert len(held) == 32 * MIB


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


def test_a_process_that_is_gone_holds_nothing() -> None:
    assert resident([]) == 0
    assert resident([2**22 + 1]) == 0
