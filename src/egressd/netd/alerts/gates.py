"""netd's side of alerts: a gate for each message, with the ways of its channel's target."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from typing import Final, Protocol

from egressd.model.alert_urls import plugin_of
from egressd.model.errors import Failed, Invalid
from egressd.model.wording import NONE, Sentence, say
from egressd.netd.alerts.order import (
    SEND_S,
    GateOrder,
    SenderOrder,
    SendOutcome,
    pack,
    unpack_outcome,
)
from egressd.netd.engine import reasons
from egressd.netd.engine.protocol import ProbeDocument
from egressd.netd.engine.trial import OpenedWays

AT_ONCE: Final = 4
"""Messages that are sent at the same time; each takes some 60 MB of memory meanwhile."""

_GATE: Final = ("-I", "-m", "egressd.netd.alerts.gate")
_ENVIRONMENT: Final = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8"}
_STARTING_S: Final = 15.0
"""Seconds that a gate may take beside its message."""
_LOG_S: Final = 0.1
"""Seconds until the engine's log has the reason of a failure."""
_LAST_WORDS: Final = 200
"""Characters of an error of a gate that has crashed."""


class WaysSource(Protocol):
    """A source of listeners whose connections leave by a probe each: see `egressd.netd.engine`."""

    def ways(self, probes: Sequence[ProbeDocument]) -> AbstractAsyncContextManager[OpenedWays]: ...


class Gates:
    """Sends messages. `account` returns user and group of gates and senders, and raises Failed."""

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
        uid, gid = self._account()
        message = SenderOrder(plugin=plugin, url=url, title=title, body=body)
        async with self._turns, self._engine.ways(probes) as opened:
            order = GateOrder(message=message, ways=opened.ways, uid=uid, gid=gid)
            outcome = await _through_gate(order)
            if not outcome.is_sent:
                await asyncio.sleep(_LOG_S)
        if outcome.is_sent:
            return NONE
        said = next(filter(None, reversed(opened.errors)), "")
        return reasons.plain(said) if said else outcome.reason


async def _through_gate(order: GateOrder) -> SendOutcome:
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
        async with asyncio.timeout(SEND_S + _STARTING_S):
            said, errors = await gate.communicate(pack(order))
    except TimeoutError:
        return SendOutcome(is_sent=False, reason=say("alert-no-answer", seconds=round(SEND_S)))
    finally:
        if gate.returncode is None:
            with suppress(ProcessLookupError):
                gate.kill()
            await gate.wait()
    try:
        return unpack_outcome(said)
    except ValueError as error:
        words = errors.decode(errors="replace").strip().rpartition("\n")[2]
        raise Failed("send the alert", words[-_LAST_WORDS:] or "its process has ended") from error


def _inherited() -> dict[str, str]:
    """Return what an administrator may set for OpenSSL."""
    names = ("SSL_CERT_FILE", "SSL_CERT_DIR")
    return {name: os.environ[name] for name in names if name in os.environ}
