"""The history's file: 10,000 clients for 90 simulated days, at full retention.

Writes what the recorder writes every ten minutes: the quarter of an hour that grows, the hours and
days that have ended, and changes of state of some of 4,000 nodes, 1,000 lines and 1,000 groups.
Numbers are random, so that nothing of them can be packed. Days before the 90, and as many changes
as are kept, are written first. Measures the file, the bytes that each write hands to the kernel
(log and checkpoint), its duration, and the duration of queries. No program of egressd runs, and
nothing is sent.
"""

from __future__ import annotations

import itertools
import random
import struct
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from bench.arguments import Arguments
from bench.figures import keep, percentile, show
from egressd.model.history import (
    BLOCK_KEYS,
    BLOCKS,
    CODES,
    DELAY_BLOCK,
    Blocks,
    By,
    HistoryKey,
    HistoryStep,
    TrafficSlot,
)
from egressd.model.node_delays import MILLISECONDS, NODES_MAX
from egressd.model.timelines import (
    CHANGES_MAX,
    PARTS_MAX,
    Recording,
    StateChange,
    TimelineWrite,
    state_code,
)
from egressd.store.history_file import FILE, HistoryFile

CLIENTS = 10_000
TARGETS = 1000
INTERFACES = 20
DAYS = 90
CHANGES = 100
"""Changes of state in each write."""
QUERIES = 100
EPOCH = 1_700_006_400
"""The Unix time at which the simulation ends: a midnight."""
POOL = 16
"""Random blocks of each size: a slot takes one of them."""


class Simulation:
    """A history that is written as by a recorder."""

    def __init__(self, folder: Path, keys: dict[By, int], seed: int) -> None:
        self.file = HistoryFile(folder / FILE)
        self.written: list[float] = []
        self.seconds: list[float] = []
        self._random = random.Random(seed)
        self._keys = keys
        self._pools = {
            block: [self._block(size) for _ in range(POOL)]
            for by in BLOCKS
            for block, size in self._sizes(by)
        }
        self._pools[DELAY_BLOCK] = [self._delays() for _ in range(POOL)]

    def _sizes(self, by: By) -> list[tuple[int, int]]:
        left, found = self._keys[by], []
        for block in BLOCKS[by]:
            if left > 0:
                found.append((block, min(left, BLOCK_KEYS)))
            left -= BLOCK_KEYS
        return found

    def _block(self, size: int) -> bytes:
        return struct.pack(
            f"={2 * size}H", *(self._random.randrange(1, CODES) for _ in range(2 * size))
        )

    def _delays(self) -> bytes:
        return bytes(self._random.randrange(1, len(MILLISECONDS)) for _ in range(NODES_MAX))

    def changes(self, at: int, number: int) -> TimelineWrite:
        """Return changes of state of random parts."""
        parts = self._random.choices([*PARTS_MAX], k=number)
        made = [
            StateChange(
                part,
                self._random.randrange(PARTS_MAX[part]),
                1,
                at,
                state_code(is_up=self._random.random() < 0.5),
            )
            for part in parts
        ]
        return TimelineWrite(made, [Recording(1, 0, at)])

    def blocks(self) -> Blocks:
        """Return the blocks of a slot in which every key has traffic."""
        return {block: self._random.choice(pool) for block, pool in self._pools.items()}

    def fill(self, days: int) -> None:
        """Write the keys, and the days before the simulated ones."""
        self.file.open()
        first = EPOCH - days * HistoryStep.DAY.seconds
        keys = [
            HistoryKey(by, number, f"{by}-{number}", 0, first)
            for by, size in self._keys.items()
            for number in range(size)
        ]
        keys += [
            HistoryKey(part, number, f"{part}-{number}", 0, first)
            for part, size in PARTS_MAX.items()
            for number in range(size)
        ]
        self.file.write([], keys, (), self.changes(first, CHANGES_MAX))
        for day in range(HistoryStep.DAY.kept - days):
            start = first - (day + 1) * HistoryStep.DAY.seconds
            self.file.write([TrafficSlot(HistoryStep.DAY, start, self.blocks())], [])

    def run(self, days: int) -> None:
        """Write every ten minutes of the simulated days."""
        at = EPOCH - days * HistoryStep.DAY.seconds
        while at < EPOCH:
            before, at = at, at + 600
            slots = [
                TrafficSlot(step, step.start(before), self.blocks())
                for step in (HistoryStep.QUARTER, HistoryStep.HOUR, HistoryStep.DAY)
                if step.start(before) != step.start(at)
            ]
            if at % HistoryStep.QUARTER.seconds:
                start = HistoryStep.QUARTER.start(at)
                slots.append(TrafficSlot(HistoryStep.QUARTER, start, self.blocks()))
            handed, begun = written_bytes(), time.perf_counter()
            self.file.write(slots, [], (), self.changes(at, CHANGES))
            self.seconds.append(time.perf_counter() - begun)
            self.written.append(written_bytes() - handed)

    def query(self, ask: Callable[[HistoryFile, int], object], queries: int) -> dict[str, float]:
        """Return how long a question takes about a client of that number, and its CPU time. The
        first one after a start is shown by itself.
        """
        self.file.open()
        samples, cpu = [], []
        for _ in range(queries + 1):
            number = self._random.randrange(self._keys["client"])
            begun, begun_cpu = time.perf_counter(), time.process_time()
            ask(self.file, number)
            samples.append(1000 * (time.perf_counter() - begun))
            cpu.append(1000 * (time.process_time() - begun_cpu))
        first, *samples = samples
        cpu = cpu[1:]
        return {
            "first (ms)": first,
            "p50 (ms)": percentile(samples, 0.5),
            "p95 (ms)": percentile(samples, 0.95),
            "p50 of CPU (ms)": percentile(cpu, 0.5),
            "p95 of CPU (ms)": percentile(cpu, 0.95),
        }


def written_bytes() -> int:
    """Return the bytes that this process has handed to write calls (proc(5), ``io``)."""
    fields = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    return int(fields["wchar"])


def series(step: HistoryStep) -> Callable[[HistoryFile, int], object]:
    """Return the question for all slots of a client that a step has."""
    window = range(EPOCH - step.seconds * step.kept, EPOCH)
    return lambda file, number: file.series(step, "client", number, window)


def top(step: HistoryStep, slots: int) -> Callable[[HistoryFile, int], object]:
    """Return the question for the clients with the most bytes, over so many slots: the last ones
    at first, and each time they all begin a slot earlier.
    """
    firsts = itertools.count(1)

    def ask(file: HistoryFile, _: int) -> object:
        first = next(firsts)
        starts = [EPOCH - step.seconds * (first + each) for each in range(slots)]
        return file.sums(step, "client", starts).largest("client", 20)

    return ask


def delays(step: HistoryStep, slots: int) -> Callable[[HistoryFile, int], object]:
    """Return the question for the delays of all nodes in so many slots."""
    window = range(EPOCH - step.seconds * slots, EPOCH)
    return lambda file, number: file.delays(step, window)


def main() -> None:
    """Measure, and show each figure."""
    arguments = Arguments("history", __doc__)
    arguments.number("--clients", CLIENTS, "clients, at most 14,000")
    arguments.number("--targets", TARGETS, "targets, at most 4,000")
    arguments.number("--interfaces", INTERFACES, "interfaces, at most 1,000")
    arguments.number("--days", DAYS, "simulated days, at most 730")
    arguments.number("--queries", QUERIES, "queries of each kind, after a first one")
    arguments.number("--seed", 1, "seed of the random numbers")
    given = arguments.read()
    with tempfile.TemporaryDirectory(prefix="egressd-history-") as folder:
        keys: dict[By, int] = {
            "client": given.clients,
            "target": given.targets,
            "interface": given.interfaces,
        }
        simulation = Simulation(Path(folder), keys, given.seed)
        simulation.fill(given.days)
        simulation.run(given.days)
        size = sum(each.stat().st_size for each in Path(folder).iterdir())
        written, seconds = simulation.written, simulation.seconds
        figures = {
            "size": {"MB": size / 1e6},
            "write (KB)": {
                "p50": percentile(written, 0.5) / 1e3,
                "p99": percentile(written, 0.99) / 1e3,
                "max": max(written) / 1e3,
            },
            "write (ms)": {
                "p50": 1000 * percentile(seconds, 0.5),
                "p99": 1000 * percentile(seconds, 0.99),
                "max": 1000 * max(seconds),
            },
        }
        questions = {
            "client, 3 days of quarters": series(HistoryStep.QUARTER),
            "client, 31 days of hours": series(HistoryStep.HOUR),
            "client, 2 years of days": series(HistoryStep.DAY),
            "top clients, 6 hours": top(HistoryStep.QUARTER, 25),
            "top clients, 1 day": top(HistoryStep.HOUR, 25),
            "top clients, 31 days": top(HistoryStep.DAY, 32),
            "a node, 3 days of quarters": delays(HistoryStep.QUARTER, 288),
            "all nodes, 1 day of hours": delays(HistoryStep.HOUR, 25),
            "a line's states": lambda file, number: file.changes("line", number % 1000, 0),
            "all lines' states, 1 day": lambda file, _: file.changes("line", None, EPOCH - 86_400),
        }
        queries = {name: simulation.query(ask, given.queries) for name, ask in questions.items()}
        simulation.file.close()
    show("The file and its writes", figures)
    show("Queries", queries)
    keep("history", {"file": figures, "queries": queries}, given.json)


if __name__ == "__main__":
    main()
