"""Delays of many probes, measured in a trial worker.

The delay of a probe is the time from opening a connection through its final outbound to the head of
the response to a HEAD request, regardless of the response's status: so it covers the node's own
handshake and, with https, the TLS handshake with the site. A probe that needs the page uses GET,
and its delay includes the page.

Probes share instances (`batch`). A batch that the engine refuses is halved until the faulty probe
is alone, so one bad configuration costs the others nothing.
"""

from __future__ import annotations

import asyncio
import ssl
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Final

from egressd.model.delays import Delay
from egressd.model.wording import as_sentence, say
from egressd.netd.engine import batch, reasons
from egressd.netd.engine.batch import BatchPart
from egressd.netd.engine.fetch import FetchFailure, Progress, fetch
from egressd.netd.engine.instances import Refusal
from egressd.netd.engine.protocol import Measure, Measured, ProbeDocument
from egressd.netd.engine.serving import Serving
from egressd.netd.engine.urls import Url, parse_url

_BATCH: Final = 250
"""Probes that share an instance."""

_IN_FLIGHT: Final = 1024
"""Probes under way at the same time, each with about three descriptors."""

_BEGINNING: Final = 16
"""Probes that begin at the same time, see `_BEGINNING_S`."""
_BEGINNING_S: Final = 0.05
"""Seconds after which a probe makes room for the next. Probes begin 16 at a time; each makes room
when it ends, or after 50 ms, when its costly part is over. More would lengthen each other's delays,
and waiting for the end of dead ones would take minutes."""

_LOG_S: Final = 0.1
"""Seconds until the log is read. The engine reports a failure first and logs it then, in time to be
read if it is left alone."""


class Measurer:
    """Measures. Made while root's files can be read: it loads the system's CA certificates."""

    def __init__(self) -> None:
        self._tls = ssl.create_default_context()
        # Python 3.13 refuses an authority without key usage or key identifiers (RFC 5280 wants
        # them). Private ones often lack them, and an operator who installed one wants it trusted.
        self._tls.verify_flags &= ~ssl.VERIFY_X509_STRICT
        self._tls.set_alpn_protocols(["http/1.1"])

    async def measure(self, order: Measure) -> Measured:
        """Return the delay of each probe, by name. Raises ValueError if the URL is invalid."""
        measurement = _Measurement(parse_url(order.url), order.timeout_ms, self._tls)
        found = await measurement.of(order.probes)
        return Measured({probe.name: found[number] for number, probe in enumerate(order.probes)})


class _Measurement:
    """One measurement of many probes. Results are kept by the probes' numbers."""

    def __init__(self, url: Url, timeout_ms: int, tls: ssl.SSLContext) -> None:
        self._url = url
        self._timeout_ms = timeout_ms
        self._tls = tls
        self._results: dict[int, Delay] = {}
        self._unexplained: set[int] = set()
        """Numbers of probes whose failure the engine's log may explain better."""
        self._serving: dict[int, Serving] = {}
        self._in_flight = asyncio.Semaphore(_IN_FLIGHT)
        self._beginning = asyncio.Semaphore(_BEGINNING)

    async def of(self, probes: tuple[ProbeDocument, ...]) -> dict[int, Delay]:
        """Measure `probes`; their numbers are their indexes."""
        self._read_max = [probe.read_max for probe in probes]
        try:
            for parts in self._batches(probes):
                await self._serve(parts)
            await asyncio.gather(*(self._take_turn(number) for number in self._serving))
        finally:
            if self._unexplained:
                await asyncio.sleep(_LOG_S)
            for serving in set(self._serving.values()):
                self._explain(await asyncio.to_thread(serving.stop))
        return self._results

    def _batches(self, probes: tuple[ProbeDocument, ...]) -> Iterator[dict[int, BatchPart]]:
        """Yield the probes that can be measured, in groups that can share an instance."""
        alike: defaultdict[bytes, list[tuple[int, BatchPart]]] = defaultdict(list)
        for number, probe in enumerate(probes):
            try:
                part = batch.part(probe.config)
            except ValueError as error:
                self._results[number] = Delay(delay=-1, error=as_sentence(str(error)))
            else:
                alike[part.surroundings].append((number, part))
        for parts in alike.values():
            for first in range(0, len(parts), _BATCH):
                yield dict(parts[first : first + _BATCH])

    async def _serve(self, parts: dict[int, BatchPart]) -> None:
        """Start an instance for `parts`; halve them while the engine refuses."""
        try:
            serving = await asyncio.to_thread(Serving, parts)
        except Refusal as refusal:
            if len(parts) == 1:
                self._results |= {number: Delay(delay=-1, error=refusal.reason) for number in parts}
                return
            numbered = list(parts.items())
            half = len(numbered) // 2
            await self._serve(dict(numbered[:half]))
            await self._serve(dict(numbered[half:]))
        else:
            self._serving |= dict.fromkeys(parts, serving)

    async def _take_turn(self, number: int) -> None:
        async with self._in_flight:
            async with self._beginning:
                task = asyncio.ensure_future(self._fetch(number))
                await asyncio.wait({task}, timeout=_BEGINNING_S)
            await task

    async def _fetch(self, number: int) -> None:
        clock = asyncio.get_running_loop().time
        progress = Progress()
        proxy = self._serving[number].proxy(number)
        begin = clock()
        try:
            async with asyncio.timeout(self._timeout_ms / 1000):
                page = await fetch(proxy, self._url, self._tls, progress, self._read_max[number])
            # At least 1, since 0 and less would read as a failure.
            delay = Delay(delay=max(1, round((clock() - begin) * 1000)), page=page)
        except TimeoutError:
            error = say("timed-out-at", timeout=self._timeout_ms, stage=progress.stage)
            delay = Delay(delay=-1, error=error)
        except FetchFailure as failure:
            delay = Delay(delay=-1, error=failure.reason)
            self._unexplained.add(number)
        self._results[number] = delay

    def _explain(self, errors: Mapping[int, str]) -> None:
        for number in self._unexplained & errors.keys():
            self._results[number] = Delay(delay=-1, error=reasons.plain(errors[number]))
