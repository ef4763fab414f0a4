"""Callers that share a call."""

from __future__ import annotations

import asyncio

import pytest

from egressd.service.shared_call import SharedCall


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


class Slow:
    """A call that ends when it is let; it returns its number."""

    def __init__(self) -> None:
        self.begun = 0
        self.ends: list[asyncio.Future[int]] = []
        self.shared = SharedCall(self._call)

    async def _call(self) -> int:
        self.begun += 1
        self.ends.append(asyncio.get_running_loop().create_future())
        return await self.ends[-1]


async def test_callers_share_the_next_call_and_not_one_that_runs() -> None:
    slow = Slow()
    first = asyncio.create_task(slow.shared.get())
    await settle()
    later = [asyncio.create_task(slow.shared.get()) for _ in range(50)]
    await settle()
    assert slow.begun == 1
    slow.ends[0].set_result(1)
    await settle()
    assert slow.begun == 2
    slow.ends[1].set_result(2)
    assert await first == 1
    assert await asyncio.gather(*later) == [2] * 50


async def test_a_failure_is_each_callers_and_the_next_call_is_another() -> None:
    slow = Slow()
    callers = [asyncio.create_task(slow.shared.get()) for _ in range(2)]
    await settle()
    callers[0].cancel()
    slow.ends[0].set_exception(ValueError("no"))
    with pytest.raises(ValueError, match="no"):
        await callers[1]
    again = asyncio.create_task(slow.shared.get())
    await settle()
    slow.ends[1].set_result(2)
    assert await again == 2
