from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from egressd.app.interrupts import Interrupts

RUNS = 300


@contextmanager
def interrupted() -> Iterator[None]:
    """Have SIGINT raise KeyboardInterrupt, however the tests were started."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def test_an_interrupt_waits_for_the_block_that_it_may_end() -> None:
    done = []
    with interrupted(), Interrupts() as interrupts:
        signal.raise_signal(signal.SIGINT)
        done.append("before")
        with pytest.raises(KeyboardInterrupt), interrupts.allowed():
            done.append("in the block")
    assert done == ["before"]


def test_an_interrupt_behind_the_block_is_not_raised() -> None:
    with interrupted():
        with Interrupts() as interrupts:
            with interrupts.allowed():
                pass
            signal.raise_signal(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)


def test_an_ignored_signal_stays_ignored() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with Interrupts() as interrupts, interrupts.allowed():
            signal.raise_signal(signal.SIGINT)
    finally:
        signal.signal(signal.SIGINT, before)


def test_the_undoing_is_whole_however_many_interrupts_come() -> None:
    # Past fault: the second one came before the signal was ignored, and ended the undoing.
    main, ended = threading.main_thread().ident, threading.Event()
    assert main is not None
    undone = []

    def work() -> None:
        with Interrupts() as interrupts:
            try:
                with interrupts.allowed():
                    ended.wait(60)
            finally:
                undone.append("in part")
                undone.append("whole")

    def storm() -> None:
        while not ended.is_set():
            signal.pthread_kill(main, signal.SIGINT)

    before = signal.signal(signal.SIGINT, lambda *_: None)
    storming = threading.Thread(target=storm)
    storming.start()
    try:
        for _ in range(RUNS):
            with pytest.raises(KeyboardInterrupt):
                work()
    finally:
        ended.set()
        storming.join()
        signal.signal(signal.SIGINT, before)
    assert undone == ["in part", "whole"] * RUNS
