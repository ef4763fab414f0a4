"""Labs side by side, each with another program as its router."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Final, ParamSpec, Self, TypeVar

from bench import ends, meter
from bench.figures import Tables, compared, show
from egressd_lab import netns
from egressd_lab.client import Client
from egressd_lab.lab import Lab
from egressd_lab.spec import LabSpec
from tests.support.crowd import make_room
from tests.support.netns import JoinedNamespace

P = ParamSpec("P")
T = TypeVar("T")

Measure = Callable[[], Mapping[str, float]]
"""A function that returns one sample of each figure."""

SERVER: Final = "203.0.113.10"
GIGA: Final = 1e9


class Site:
    """A lab with a measuring server on its internet. A context manager."""

    def __init__(self, spec: LabSpec) -> None:
        self.lab = Lab(spec)
        self.pids: Sequence[int] = ()
        """The processes that the router's traffic may cost CPU time."""
        self._stack = ExitStack()
        self._joined: dict[str, JoinedNamespace] = {}
        self._kernel = meter.packet_threads()

    def __enter__(self) -> Self:
        make_room()  # for the hundreds of clients and nodes of all labs together
        self._stack.enter_context(self.lab)
        self._server = self.within("internet").start(ends.serve, SERVER)
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def within(self, role: str) -> JoinedNamespace:
        """Return the namespace of a role, to call functions in it."""
        if role not in self._joined:
            name = netns.namespace(self.lab.name, role)
            self._joined[role] = self._stack.enter_context(JoinedNamespace(name))
        return self._joined[role]

    def client(self, number: int, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call a function in a client's namespace."""
        return self.within(self.lab.client(number).host.role).run(call, *args, **kwargs)

    def transfer(self, clients: Sequence[Client], seconds: float, way: str) -> tuple[float, float]:
        """Return Gbit/s of payload, ``up`` or ``down``, and the router's CPU seconds per GB.

        The clients share a namespace.
        """
        pump = {"up": ends.upload, "down": ends.download}[way]
        sources = [client.address for client in clients]
        used = self.used_s()
        moved = self.within(clients[0].host.role).run(pump, sources, SERVER, seconds)
        return moved.rate * 8 / GIGA, (self.used_s() - used) * GIGA / moved.size

    def used_s(self) -> float:
        """Return the CPU seconds so far of the router's processes and the kernel's
        packet threads.
        """
        return meter.used_s([*self.pids, *self._kernel])


def egressd_pids(lab: Lab) -> list[int]:
    """Return all of egressd's processes."""
    return [pid for part in ("egressd.app", "engine.worker") for pid in lab.device.pids(part)]


def alternate(rounds: int, measures: Mapping[str, Measure]) -> dict[str, dict[str, list[float]]]:
    """Return samples by measure and figure: all in turn in every round, and each begins in its
    turn.
    """
    samples: dict[str, dict[str, list[float]]] = {name: {} for name in measures}
    names = list(measures)
    for number in range(rounds):
        start = number % len(names)
        for name in names[start:] + names[:start]:
            for figure, value in measures[name]().items():
                samples[name].setdefault(figure, []).append(value)
    return samples


def compare(title: str, measures: Mapping[str, Measure], base: str, rounds: int) -> Tables:
    """Measure in turn, print each sample, show the tables, and compare to the measure `base`."""

    def measure(name: str) -> Mapping[str, float]:
        found = measures[name]()
        print(title, name, {k: round(v, 2) for k, v in found.items()}, file=sys.stderr)
        return found

    tables = compared(alternate(rounds, {name: partial(measure, name) for name in measures}), base)
    for figure, rows in tables.items():
        show(f"{title}: {figure}, against {base}", rows)
    return tables
