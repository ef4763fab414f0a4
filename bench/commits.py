"""Two commits as routers, in turns.

``forwarding`` measures `bench.forwarding`'s figures with 10,000 rules, and ``udp`` datagrams of one
client through a Shadowsocks node: both commits are the router of one lab, so that namespaces and
addresses are the same and only the code differs. ``changes`` measures `bench.changes`'s moves of
one client in two labs that run side by side. *Within noise of before* is a ratio of 0.97 or better,
or 1.03 or less where less is better: the median of the rounds' ratios.
"""

from __future__ import annotations

import argparse
import re
import subprocess
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from statistics import median

from bench import changes, ends, figures, forwarding
from bench.arguments import Arguments
from bench.figures import Tables, keep, show
from bench.sites import SERVER, Measure, Site, compare, egressd_pids
from bench.turns import RULES, clear
from egressd_lab.device import COMMAND
from egressd_lab.process import Program
from egressd_lab.spec import LabSpec

ROUNDS = 12
SECONDS = 2
_UNKNOWN_KEY = re.compile(r"(\S+) is not a key of the configuration")
BLOCK = 30
"""Moves by one commit before it is the other's turn."""
BEFORE = "before"
AFTER = "this commit"


class Commits:
    """A site whose router is the egressd of one of two checkouts: the one that was requested last.

    Each has data of its own, since an older egressd refuses a newer database.
    """

    def __init__(self, site: Site, checkout: Path, prepare: Callable[[Site], None]) -> None:
        """`prepare` configures the router, by its API. This checkout's egressd runs first."""
        for each in {Path(__file__).parent.parent, checkout}:
            compile_modules(each)
        self._site = site
        self._prepare = prepare
        self._commands = {AFTER: COMMAND[0], BEFORE: str(checkout / ".venv/bin/egressd")}
        self._running = AFTER
        site.lab.start_egressd()
        self._device = site.lab.device
        prepare(site)
        site.pids = egressd_pids(site.lab)

    def run(self, commit: str) -> None:
        """Make `commit` the router."""
        if commit == self._running:
            return
        self._device.stop()
        clear(self._site)
        self._device.data.rename(self._kept(self._running))
        is_prepared = self._kept(commit).exists()
        if is_prepared:
            self._kept(commit).rename(self._device.data)
        old = self._device.program
        program = self._commands[commit]
        command = [program, "serve", "--config", str(known_part(program, self._device.config))]
        self._device.program = Program(old.namespace, command, old.log, self._device.environment)
        self._device.start()
        if not is_prepared:
            self._prepare(self._site)
        self._site.pids = egressd_pids(self._site.lab)
        self._running = commit

    def measured(self, commit: str, measure: Measure) -> Mapping[str, float]:
        """Run `commit` as the router, and return a sample of each figure."""
        self.run(commit)
        return measure()

    def _kept(self, commit: str) -> Path:
        """Return the folder of a commit's data while the other one runs."""
        return self._device.data.with_name(f"data of {commit}")


def compile_modules(checkout: Path) -> None:
    """Make the byte code of a checkout's modules, which an installed egressd has. An older
    script/setup leaves it to the first start, which PYTHONDONTWRITEBYTECODE keeps from making it.
    """
    argv = [str(checkout / ".venv/bin/python"), "-m", "compileall", "-q", str(checkout / "src")]
    subprocess.run(argv, check=True)


def known_part(program: str, config: Path) -> Path:
    """Return a configuration without the keys that an older egressd, given by its command, does not
    know.
    """
    text, known = config.read_text(), config.with_name("known.toml")
    while True:
        known.write_text(text)
        argv = [program, "token", "show", "--config", str(known)]
        done = subprocess.run(argv, capture_output=True, check=False, text=True)
        if not (fault := _UNKNOWN_KEY.search(done.stderr)):
            return known
        table, _, key = fault[1].partition(".")
        lines = rf"(?m)^{key} = .*\n" if key else rf"(?m)^\[{table}\]\n(?:[^\[].*\n)*"
        text = re.sub(lines, "", text)


def in_kernel(given: argparse.Namespace) -> Tables:
    """Compare targets whose traffic stays in the kernel, with many rules."""
    with Site(LabSpec(nodes=("ss",), clients=21)) as site, forwarding.iperf_server(site):
        commits = Commits(site, given.checkout, partial(forwarding.egressd, rules=RULES))
        tables: Tables = {}
        for target, node in forwarding.TARGETS.items():
            measure = forwarding.Way(site, given.seconds, node).measure
            title = f"forwarding, {target}"
            tables |= named(title, compared(title, commits, measure, given.rounds))
        return tables


def datagrams(given: argparse.Namespace) -> Tables:
    """Compare UDP through a node."""

    def prepare(site: Site) -> None:
        add_node(site)
        rule = {"ip": site.lab.client(1).address, "target_node": "ss"}
        site.lab.api.post("/rules", rule)

    with Site(LabSpec(nodes=("ss",))) as site:
        commits = Commits(site, given.checkout, prepare)
        measure = partial(exchanged, site, given.seconds)
        return compared("UDP through ss", commits, measure, given.rounds)


def moves(given: argparse.Namespace) -> Tables:
    """Compare one client's moves among rules, from the request to the answer."""
    spec = LabSpec(clients=max(changes.BYSTANDERS), nodes=("ss",))
    with ExitStack() as stack:
        labs = {}
        for commit in (BEFORE, AFTER):
            site = stack.enter_context(Site(spec))
            Commits(site, given.checkout, add_node).run(commit)
            labs[commit] = site.lab
        tables: Tables = {}
        for rules in changes.RULES:
            for lab in labs.values():
                changes.fill(lab, rules)
            movers = {commit: changes.Mover(lab) for commit, lab in labs.items()}
            rows = compared_in_blocks(movers, given.rounds)
            show(f"moves, {rules:,} rules: median (ms), against {BEFORE}", rows)
            tables[f"moves, {rules:,} rules: median (ms)"] = rows
        return tables


def compared_in_blocks(
    movers: Mapping[str, changes.Mover], rounds: int
) -> dict[str, dict[str, float]]:
    """Compare the medians of each round.

    Within a round the commits alternate in short blocks, since a machine may be slow for a second.
    """
    samples: dict[str, dict[str, list[float]]] = {commit: {"ms": []} for commit in movers}
    names = list(movers)
    for _ in range(rounds):
        found: dict[str, list[float]] = {commit: [] for commit in names}
        for _ in range(changes.SAMPLES // BLOCK):
            names.reverse()
            for commit in names:
                found[commit] += movers[commit].moved(BLOCK)
        for commit, values in found.items():
            samples[commit]["ms"].append(median(values))
    return figures.compared(samples, BEFORE)["ms"]


def named(title: str, tables: Tables) -> Tables:
    """Return tables with the title in their names."""
    return {f"{title}: {figure}": rows for figure, rows in tables.items()}


def add_node(site: Site) -> None:
    """Give the router the lab's node."""
    site.lab.api.post("/nodes", site.lab.nodes["ss"].draft())


def exchanged(site: Site, seconds: int) -> dict[str, float]:
    """Measure datagrams and answers of one client."""
    source = site.lab.client(1).address
    used = site.used_s()
    count = site.client(1, ends.exchange_datagrams, source, SERVER, seconds)
    cost = (site.used_s() - used) * 1e6 / max(count, 1)
    return {"answers (1/s)": count / seconds, "router's CPU of one (µs)": cost}


def compared(title: str, commits: Commits, measure: Measure, rounds: int) -> Tables:
    """Compare both commits, in turn."""
    ways = {name: partial(commits.measured, name, measure) for name in (BEFORE, AFTER)}
    return compare(title, ways, BEFORE, rounds)


KINDS: Mapping[str, Callable[[argparse.Namespace], Tables]] = {
    "changes": moves,
    "forwarding": in_kernel,
    "udp": datagrams,
}


def main() -> None:
    """Measure, and keep the tables."""
    arguments = Arguments("commits", __doc__)
    text = "the folder of another checkout, set up by its script/setup: the commit before, say"
    arguments.add_argument("checkout", type=Path, metavar="CHECKOUT", help=text)
    arguments.parts(KINDS)
    arguments.number("--rounds", ROUNDS, "rounds of each comparison")
    arguments.number("--seconds", SECONDS, "seconds of each transfer")
    given = arguments.read()
    given.checkout = given.checkout.resolve()
    keep("commits", {kind: KINDS[kind](given) for kind in given.parts or KINDS}, given.json)


if __name__ == "__main__":
    main()
