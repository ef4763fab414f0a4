"""A trial worker's instances that serve probes: SOCKS listeners on the loopback."""

from __future__ import annotations

import asyncio
import itertools
import os
import secrets
import socket
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Final

from egressd.model.outside_hosts import INNER
from egressd.netd.engine import batch, instances
from egressd.netd.engine.batch import BatchPart
from egressd.netd.engine.fetch import Proxy
from egressd.netd.engine.instances import Refusal
from egressd.netd.engine.protocol import ProbeDocument, Way, WaysOpened

_PORT_TRIES: Final = 10
"""Attempts to start the probes' instance, each with other ports."""
_INNER: Final = (*map(str, INNER), "::/0")


class Serving:
    """An instance that serves a batch of probes, by number. Making and stopping it block."""

    def __init__(self, parts: Mapping[int, BatchPart], refused: Sequence[str] = ()) -> None:
        """Start the instance, which connects to none of the networks `refused`. Raises Refusal."""
        self._refused = refused
        self._password = secrets.token_hex(16)
        self._instance = ExitStack()
        self._log = os.memfd_create("engine-log")
        try:
            self._port = self._start(parts)
        except BaseException:
            os.close(self._log)
            raise

    def _start(self, parts: Mapping[int, BatchPart]) -> int:
        """Listen on a free port; return it. The engine does not report the port it chose, so it
        gets one that is free now, and another one if another program took that one first.
        """
        for tries_left in reversed(range(_PORT_TRIES)):
            with socket.create_server(("127.0.0.1", 0)) as free:
                port: int = free.getsockname()[1]
            document = batch.document(
                parts, port, self._password, f"/proc/self/fd/{self._log}", self._refused
            )
            try:
                self._instance.enter_context(instances.running(document))
            except Refusal as refusal:
                if not (refusal.port_taken and tries_left):
                    raise
            else:
                break
        return port

    def proxy(self, number: int) -> Proxy:
        """Return the proxy that leads through the probe with that number."""
        return Proxy(self._port, batch.user(number), self._password)

    def stop(self) -> dict[int, str]:
        """Stop the instance. Return the first error in its log for each probe that failed."""
        with os.fdopen(self._log, "rb") as log:
            self._instance.close()
            log.seek(0)
            return batch.errors(log.read().decode(errors="replace"))


class Ways:
    """Instances that serve until `close`, one for each way, which shares nothing. None connects to
    this machine or a private network.
    """

    def __init__(self) -> None:
        self._numbers = itertools.count(1)
        self._open: dict[int, Serving] = {}

    async def open(self, probes: tuple[ProbeDocument, ...]) -> WaysOpened:
        """Start an instance for each of `probes`, and return their listeners. Raises Refusal if the
        engine refuses one.
        """
        started: dict[int, Serving] = {}
        ways = []
        try:
            for probe in probes:
                serving = await asyncio.to_thread(Serving, {0: _part(probe)}, _INNER)
                number = next(self._numbers)
                started[number] = serving
                proxy = serving.proxy(0)
                ways.append(
                    Way(number=number, port=proxy.port, user=proxy.user, password=proxy.password)
                )
        except BaseException:
            for serving in started.values():
                serving.stop()
            raise
        self._open |= started
        return WaysOpened(tuple(ways))

    async def close(self, number: int) -> str:
        """Stop an instance; return the engine's first error, or an empty text."""
        serving = self._open.pop(number, None)
        if serving is None:
            return ""
        return (await asyncio.to_thread(serving.stop)).get(0, "")


def _part(probe: ProbeDocument) -> BatchPart:
    try:
        return batch.part(probe.config)
    except ValueError as error:
        raise Refusal(str(error)) from error
