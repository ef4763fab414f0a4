"""netd's side of errands: a gate for each, with the ways of its target."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from typing import Final, Protocol

import msgspec

from egressd.model.alert_urls import plugin_of
from egressd.model.errors import Failed, Invalid
from egressd.model.messages import FetchPage, PageFetched
from egressd.model.wording import Sentence, say
from egressd.netd.engine import reasons
from egressd.netd.engine.protocol import ProbeDocument
from egressd.netd.engine.trial import OpenedWays
from egressd.netd.errands.order import (
    ERRAND_S,
    Errand,
    ErrandOutcome,
    GateOrder,
    MessageErrand,
    PageErrand,
    pack,
    unpack_outcome,
)

AT_ONCE: Final = 4
"""Errands that are done at the same time; each takes some 60 MB of memory meanwhile."""

_GATE: Final = ("-I", "-m", "egressd.netd.errands.gate")
_ENVIRONMENT: Final = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8"}
_STARTING_S: Final = 15.0
"""Seconds that a gate may take beside its errand."""
_LOG_S: Final = 0.1
"""Seconds until the engine's log has the reason of a failure."""
_LAST_WORDS: Final = 200
"""Characters of an error of a gate that has crashed."""


class WaysSource(Protocol):
    """A source of listeners whose connections leave by a probe each: see `egressd.netd.engine`."""

    def ways(self, probes: Sequence[ProbeDocument]) -> AbstractAsyncContextManager[OpenedWays]: ...


class Gates:
    """Sends messages and fetches pages. `account` returns user and group of gates and runners, and
    raises Failed.
    """

    def __init__(self, engine: WaysSource, account: Callable[[], tuple[int, int]]) -> None:
        self._engine = engine
        self._account = account
        self._turns = asyncio.Semaphore(AT_ONCE)

    async def send(
        self, probes: Sequence[ProbeDocument], url: str, title: str, body: str
    ) -> Sentence:
        """Send a message by one of the probes, and return the reason why it was not sent; empty if
        it was. Raises Invalid for a URL of no service, Failed if it cannot be tried.
        """
        plugin = plugin_of(url)
        if plugin is None:
            raise Invalid("url: it must be one of a service that alerts may be sent by")
        message = MessageErrand(plugin=plugin, url=url, title=title, body=body)
        return (await self._do(probes, message)).reason

    async def fetch(self, probes: Sequence[ProbeDocument], asked: FetchPage) -> PageFetched:
        """Fetch a page by one of the probes. Raises Failed if it cannot be tried."""
        errand = PageErrand(
            url=asked.url,
            headers=asked.headers,
            fields=asked.fields,
            read_max=asked.read_max,
        )
        outcome = await self._do(probes, errand)
        return PageFetched(reason=outcome.reason, fields=outcome.fields, content=outcome.content)

    async def _do(self, probes: Sequence[ProbeDocument], errand: Errand) -> ErrandOutcome:
        uid, gid = self._account()
        async with self._turns, self._engine.ways(probes) as opened:
            order = GateOrder(errand=errand, ways=opened.ways, uid=uid, gid=gid)
            outcome = await _through_gate(order)
            if not outcome.is_done:
                await asyncio.sleep(_LOG_S)
        said = next(filter(None, reversed(opened.errors)), "")
        if outcome.is_done or outcome.status or not said:
            return outcome
        return msgspec.structs.replace(outcome, reason=reasons.plain(said))


async def _through_gate(order: GateOrder) -> ErrandOutcome:
    gate = await asyncio.create_subprocess_exec(
        sys.executable,
        *_GATE,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=_ENVIRONMENT | _inherited(),
        cwd="/",
        start_new_session=True,
    )
    try:
        async with asyncio.timeout(ERRAND_S + _STARTING_S):
            said, errors = await gate.communicate(pack(order))
    except TimeoutError:
        return ErrandOutcome(is_done=False, reason=say("errand-no-answer", seconds=round(ERRAND_S)))
    finally:
        if gate.returncode is None:
            with suppress(ProcessLookupError):
                gate.kill()
            await gate.wait()
    try:
        return unpack_outcome(said)
    except ValueError as error:
        words = errors.decode(errors="replace").strip().rpartition("\n")[2]
        raise Failed("do the errand", words[-_LAST_WORDS:] or "its process has ended") from error


def _inherited() -> dict[str, str]:
    """Return what an administrator may set for OpenSSL."""
    names = ("SSL_CERT_FILE", "SSL_CERT_DIR")
    return {name: os.environ[name] for name in names if name in os.environ}
