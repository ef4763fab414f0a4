"""Configurations that crash the engine are kept away from the workers that serve clients."""

from __future__ import annotations

import asyncio
from typing import Final

import msgspec
import structlog

from egressd.netd.engine.document import Document
from egressd.netd.engine.trial import Crashed, Trials

log = structlog.get_logger()

_TERM_S: Final = 300.0
"""How long nothing is risked again. A worker may have died of something else, so it ends."""
_LOSSES: Final = 3
"""Workers lost while starting a configuration before it is taken to be the cause, though trials
of it went well."""


class Quarantined(Exception):
    """The configuration is not started at present; the text says why."""


class _Sentence(msgspec.Struct):
    until: float
    reason: str


class Quarantine:
    """Who may be started. Configurations are told apart by their digests."""

    def __init__(self, trials: Trials) -> None:
        self._trials = trials
        self._losses: dict[str, int] = {}
        self._sentences: dict[str, _Sentence] = {}

    async def admit(self, document: Document, digest: str) -> None:
        """Return if it may be started. One whose term is over is tried first.

        Raises Quarantined, and Failed when it has to be tried and can't be.
        """
        if (sentence := self._sentences.get(digest)) is None:
            return
        if asyncio.get_running_loop().time() < sentence.until:
            raise Quarantined(sentence.reason)
        await self._try(document, digest)
        self._sentences.pop(digest, None)

    async def suspect(self, document: Document, digest: str) -> None:
        """A worker was lost while it started this one, and perhaps others: try it alone.

        Raises Quarantined, and Failed when it can't be tried.
        """
        await self._try(document, digest)
        self._losses[digest] = self._losses.get(digest, 0) + 1
        if self._losses[digest] == _LOSSES:
            raise self._sentence(document, digest, f"{_LOSSES} workers went down starting it")

    def clear(self, digest: str) -> None:
        """It was started, and all went well."""
        self._losses.pop(digest, None)

    async def _try(self, document: Document, digest: str) -> None:
        try:
            await self._trials.problem(document.config)
        except Crashed as crashed:
            raise self._sentence(document, digest, str(crashed)) from crashed

    def _sentence(self, document: Document, digest: str, how: str) -> Quarantined:
        log.error("an engine configuration is quarantined", key=document.key, why=how)
        self._losses.pop(digest, None)
        reason = (
            f"the engine crashes on its configuration ({how}); "
            f"it is started again when that changes, and tried every {_TERM_S / 60:.0f} minutes"
        )
        until = asyncio.get_running_loop().time() + _TERM_S
        self._sentences[digest] = _Sentence(until, reason)
        return Quarantined(reason)
