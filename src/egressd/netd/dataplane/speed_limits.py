"""The plan's speed limits and the traffic counters of each rule, on behalf of the reconciler.

A limit that the kernel refuses fails the change that brings it, and nothing else: a kernel without
HTB routes all the same, and `problems` names the missing parts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Final

import structlog

from egressd.model.errors import Failed
from egressd.model.messages import RuleCount
from egressd.model.plan import Limit, Patch
from egressd.model.wording import NONE, Sentence, as_sentence
from egressd.netd.kernel.tc import Shaper
from egressd.planner.shaping import is_limited
from egressd.planner.topology import Topology

log = structlog.get_logger()

_SHORT: Final = 8
"""Rules at most in a change that is carried out at once (0.2 ms each); a larger change goes to a
thread."""
_RETRY_S: Final = 10.0
"""Seconds between attempts to set limits that the kernel refused."""


class SpeedLimits:
    """Speed limits, converged to a plan. Calls may overlap: they take turns."""

    def __init__(self, shaper: Shaper) -> None:
        self._shaper = shaper
        self._turn = asyncio.Lock()
        self._problem = NONE
        self._retry_at = 0.0

    @property
    def problems(self) -> tuple[Sentence, ...]:
        """Sentences about limits that the kernel refused."""
        return (self._problem,) if self._problem else ()

    async def sync(self, limits: Mapping[str, Limit], topology: Topology) -> bool:
        """Make the limits equal to `limits`, as far as the kernel accepts them. Return True if
        anything differed.
        """
        async with self._turn:
            return await self._attempt(lambda: self._shaper.sync(limits, topology))

    async def refresh(self, limits: Mapping[str, Limit], topology: Topology) -> bool:
        """Adapt to the interfaces and addresses of `topology`, and repair limits that are plainly
        broken.

        `limits` are the limits that are or should be in force. Return True if anything was wrong.
        """
        async with self._turn:
            if not self._problem:
                return await self._attempt(lambda: self._shaper.refresh(topology))
            if asyncio.get_running_loop().time() < self._retry_at:
                return False
            return await self._attempt(lambda: self._shaper.sync(limits, topology))

    async def change(
        self,
        patch: Patch[Limit],
        limits: Mapping[str, Limit],
        topology: Topology,
        *,
        strict: bool,
    ) -> None:
        """Put `patch` in force, after which the limits are `limits`.

        With `strict`, raises Failed when `patch` limits a client and the kernel refuses; the
        limits are then as they were.
        """
        if not patch:
            return
        must_hold = strict and any(map(is_limited, patch.put.values()))
        async with self._turn:
            if self._problem:
                if must_hold:
                    raise Failed("put speed limits in force", self._problem)
                return  # the next attempt is at all limits
            try:
                if len(patch.put) + len(patch.drop) <= _SHORT:
                    self._shaper.change(patch)
                else:
                    await asyncio.to_thread(self._shaper.change, patch)
            except Failed:
                if must_hold:
                    raise
                await self._attempt(lambda: self._shaper.sync(limits, topology))

    async def counters(self) -> dict[int, RuleCount]:
        """Return the traffic of each rule since it is in force, by its number. Raises Failed."""
        async with self._turn:
            return await asyncio.to_thread(self._shaper.counters)

    def close(self) -> None:
        """Close the connection to the kernel. All limits stay in force."""
        self._shaper.close()

    async def _attempt(self, work: Callable[[], int]) -> bool:
        """Return True if `work` changed something. A failure is logged, and retried later."""
        try:
            found = await asyncio.to_thread(work)
        except Failed as error:
            if str(error) != self._problem:
                log.warning("rate limits are not in force", error=str(error))
            self._problem = as_sentence(str(error))
            self._retry_at = asyncio.get_running_loop().time() + _RETRY_S
            return False
        self._problem = NONE
        return found > 0
