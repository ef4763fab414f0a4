"""Waiting that takes no time: minutes of a test pass at once."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable
from typing import Final

from tests.support.loops import Backend


class Hurry(selectors.DefaultSelector):
    """A selector that advances the clock instead of waiting, so that a busy machine changes
    nothing.
    """

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        self.now += timeout or 0.0
        return super().select(0)


def clockless() -> asyncio.AbstractEventLoop:
    """Return an event loop by whose clock only waiting takes time."""
    selector = Hurry()
    loop = asyncio.SelectorEventLoop(selector)
    loop.time = lambda: selector.now  # type: ignore[method-assign]
    return loop


CLOCKLESS: Final[Backend] = ("asyncio", {"loop_factory": clockless})
"""The value of the fixture `anyio_backend` for tests in such a loop."""


async def until(check: Callable[[], bool], seconds: float) -> float:
    """Return the seconds until `check` was true."""
    clock = asyncio.get_running_loop().time
    begun = clock()
    while not check():
        assert clock() - begun < seconds, "not in time"
        await asyncio.sleep(0.005)
    return clock() - begun
