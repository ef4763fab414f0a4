"""Two commits as the router of one lab, in turns.

The namespaces, addresses, data and nodes are the same for both, so that only the code differs.
``forwarding`` measures `bench.forwarding`'s figures with 10,000 rules; ``udp`` measures datagrams
of one client through a Shadowsocks node. *Within noise of before* is a ratio of 0.97 or better, or
1.03 or less where less is better: the median of the rounds' ratios.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from bench import ends, forwarding
from bench.arguments import Arguments
from bench.figures import Tables, keep
from bench.sites import SERVER, Measure, Site, compare, egressd_pids
from bench.turns import RULES, clear
from egressd_lab.device import COMMAND
from egressd_lab.process import Program
from egressd_lab.spec import LabSpec

ROUNDS = 12
SECONDS = 2
BEFORE = "before"
AFTER = "this commit"


class Commits:
    """A site whose router is the egressd of one of two checkouts: the one that was requested last.

    This checkout's egressd runs first, on data that the other one can read too.
    """

    def __init__(self, site: Site, checkout: Path) -> None:
        self._site = site
        self._device = site.lab.device
        self._commands = {AFTER: COMMAND[0], BEFORE: str(checkout / ".venv/bin/egressd")}
        self._running = AFTER

    def measured(self, commit: str, measure: Measure) -> Mapping[str, float]:
        """Run `commit` as the router, and return a sample of each figure."""
        if commit != self._running:
            self._device.stop()
            clear(self._site)
            old = self._device.program
            command = [self._commands[commit], *old.argv[1:]]
            self._device.program = Program(
                old.namespace, command, old.log, self._device.environment
            )
            self._device.start()
            self._site.pids = egressd_pids(self._site.lab)
            self._running = commit
        return measure()


def in_kernel(given: argparse.Namespace) -> Tables:
    """Compare targets whose traffic stays in the kernel, with many rules."""
    with Site(LabSpec(nodes=("ss",), clients=21)) as site, forwarding.iperf_server(site):
        forwarding.egressd(site, RULES)
        commits = Commits(site, given.checkout)
        tables: Tables = {}
        for target, node in forwarding.TARGETS.items():
            measure = forwarding.Way(site, given.seconds, node).measure
            tables |= compared(f"forwarding, {target}", commits, measure, given.rounds)
        return tables


def datagrams(given: argparse.Namespace) -> Tables:
    """Compare UDP through a node."""
    with Site(LabSpec(nodes=("ss",))) as site:
        lab = site.lab
        lab.start_egressd()
        lab.api.post("/nodes", lab.nodes["ss"].draft())
        lab.api.post("/rules", {"ip": lab.client(1).address, "target_node": "ss"})
        site.pids = egressd_pids(lab)
        commits, measure = Commits(site, given.checkout), partial(exchanged, site, given.seconds)
        return compared("UDP through ss", commits, measure, given.rounds)


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
