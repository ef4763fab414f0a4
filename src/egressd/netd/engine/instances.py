"""sing-box instances inside this process. The only module that imports `singbox`.

Importing it loads the Go runtime, which starts threads: `egressd.netd.system.privileges.begin_drop`
comes first. Every call blocks (the binding lets other Python threads run meanwhile) and may be made
from any thread.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import singbox

from egressd.netd.engine import reasons
from egressd.netd.engine.protocol import Live, Start


class Refusal(Exception):
    """The engine refused to start a configuration; ``reason`` says why."""

    def __init__(self, error: str) -> None:
        self.reason = reasons.refusal(error)
        super().__init__(self.reason)
        self.port_taken = "address already in use" in error


@contextmanager
def running(config: str) -> Iterator[None]:
    """Run an instance of `config` for the duration of the context. Raises Refusal."""
    instance = _started(config)
    try:
        yield
    finally:
        instance.stop()


class Instances:
    """The instances that serve clients."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._last = 0
        self._instances: dict[int, tuple[Live, singbox.SingBox]] = {}

    def start(self, order: Start) -> Live:
        """Start an instance; it listens when this returns. Raises Refusal."""
        instance = _started(order.config)
        with self._lock:
            self._last += 1
            live = Live(
                number=self._last,
                key=order.key,
                digest=order.digest,
                port=order.port,
                started=time.monotonic_ns(),
            )
            self._instances[live.number] = (live, instance)
        return live

    def stop(self, number: int) -> None:
        """Stop an instance; do nothing if there is none with that number."""
        with self._lock:
            _, instance = self._instances.pop(number, (None, None))
        if instance is not None:
            instance.stop()

    def live(self) -> tuple[Live, ...]:
        """Return the running instances, oldest first."""
        with self._lock:
            return tuple(live for live, _ in self._instances.values())


def _started(config: str) -> singbox.SingBox:
    instance = singbox.SingBox()
    try:
        instance.startFromJSON(config)
    except singbox.SingBoxError as error:
        raise Refusal(str(error)) from error
    return instance
