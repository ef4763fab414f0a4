"""Captures: the packets that crossed an interface, by source, destination and token."""

from __future__ import annotations

from collections.abc import Callable
from typing import Self

from egressd.model.errors import Failed
from egressd_lab.observed import Captured, Flow, Packet
from egressd_lab.packets import new_token
from egressd_lab.prober import Prober


class Capture:
    """A running capture. A context manager: it ends with the block.

    One interface is watched by its index, so it must not be made anew meanwhile; watch all
    interfaces of a namespace to see one come and go.
    """

    def __init__(self, prober: Prober, interface: str, keep: bool) -> None:
        self._prober = prober
        self._interface = interface
        self._channel = prober.ready()
        self._channel.call("capture", type(None), interface=interface, keep=keep)

    def read(self) -> Captured:
        """Return all that was captured until now. Raises Failed if the kernel dropped any of it."""
        captured = self._channel.call("captured", Captured)
        if captured.dropped:
            raise Failed(f"capture on {self._interface or 'all'}", f"lost {captured.dropped}")
        return captured

    def flows(self, token: str = "", **wanted: str | int | bool) -> list[Flow]:
        """Return the flows whose token is `token` (any, if empty) and whose fields
        equal `wanted`.
        """
        return [
            flow
            for flow in self.read().flows
            if (not token or flow.token == token)
            and all(getattr(flow, name) == value for name, value in wanted.items())
        ]

    def packets(self, token: str = "") -> list[Packet]:
        """Return kept packets (see `Host.capture`), in the order of arrival."""
        return [p for p in self.read().packets if not token or p.token == token]

    def interfaces_of(self, token: str) -> set[str]:
        """Return the interfaces on which packets with this token were seen."""
        return {flow.interface for flow in self.flows(token)}

    def clear(self) -> None:
        """Discard all that was captured."""
        self._channel.call("clear_capture", type(None))

    def prove(self, send: Callable[[str], object] | None = None) -> str:
        """Make sure that this capture sees the packets that it should: the positive control.

        `send` sends something with the given token along the watched way; without it, a packet is
        put on each watched interface. Returns the token. Raises Failed if the capture is blind.
        """
        token = new_token()
        if send is None:
            due = set(self._channel.call("inject", list[str], token=token))
        else:
            send(token)
            due = {self._interface} if self._interface else set()
        seen = self.interfaces_of(token)
        if not seen or not due <= seen:
            missing = ", ".join(sorted(due - seen)) or "any interface"
            raise Failed("prove the capture", f"it does not see a token on {missing}")
        return token

    def stop(self) -> Captured:
        """End the capture and return what it saw. Raises Failed if any packet was dropped."""
        try:
            return self.read()
        finally:
            self._prober.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._prober.close()
