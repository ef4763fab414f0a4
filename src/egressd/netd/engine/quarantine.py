"""Keeps configurations that crash the engine away from the workers that serve clients."""

from __future__ import annotations

import asyncio
from typing import Final

import msgspec
import structlog

from egressd.model.wording import Sentence, say
from egressd.netd.engine.document import Document
from egressd.netd.engine.trial import Crashed, Trials

log = structlog.get_logger()

_TERM_S: Final = 300.0
"""Seconds until a configuration is tried again. A worker may have died of another cause, so the
quarantine ends."""
_LOSSES: Final = 3
"""Number of workers lost while starting a configuration after which it counts as the cause,
although its trials went well."""


class Quarantined(Exception):
    """The configuration is not started at present; ``reason`` says why."""

    def __init__(self, reason: Sentence) -> None:
        super().__init__(reason)
        self.reason = reason


class _Sentence(msgspec.Struct):
    until: float
    reason: Sentence


class Quarantine:
    """The configurations that may not be started, identified by their digests."""

    def __init__(self, trials: Trials) -> None:
        self._trials = trials
        self._losses: dict[str, int] = {}
        self._sentences: dict[str, _Sentence] = {}

    async def admit(self, document: Document, digest: str) -> None:
        """Return if the document may be started. One whose term is over is tried first.

        Raises Quarantined, and Failed if a necessary trial is impossible.
        """
        if (sentence := self._sentences.get(digest)) is None:
            return
        if asyncio.get_running_loop().time() < sentence.until:
            raise Quarantined(sentence.reason)
        await self._try(document, digest)
        self._sentences.pop(digest, None)

    async def suspect(self, document: Document, digest: str) -> None:
        """Try a document alone, after a worker was lost while it started this one, and perhaps
        others.

        Raises Quarantined, and Failed if the trial is impossible.
        """
        await self._try(document, digest)
        self._losses[digest] = self._losses.get(digest, 0) + 1
        if self._losses[digest] == _LOSSES:
            raise self._sentence(document, digest, f"{_LOSSES} workers went down starting it")

    def clear(self, digest: str) -> None:
        """Note that the configuration was started without a loss."""
        self._losses.pop(digest, None)

    async def _try(self, document: Document, digest: str) -> None:
        try:
            await self._trials.problem(document.config)
        except Crashed as crashed:
            raise self._sentence(document, digest, str(crashed)) from crashed

    def _sentence(self, document: Document, digest: str, how: str) -> Quarantined:
        log.error("engine configuration quarantined", key=document.key, why=how)
        self._losses.pop(digest, None)
        reason = say("quarantined", reason=how, minutes=round(_TERM_S / 60))
        until = asyncio.get_running_loop().time() + _TERM_S
        self._sentences[digest] = _Sentence(until, reason)
        return Quarantined(reason)
