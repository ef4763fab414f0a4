"""One router, plain Linux and egressd in turn: `bench.forwarding`'s figures with 10,000 rules.

    python -m bench.turns [--rounds N]

Two labs of the same make differ by a tenth, always the same one, so that a ratio of two says
little about a router that costs less. Here the same namespaces, devices and addresses forward for
both. egressd ends before plain Linux's turn, and what it leaves in the kernel on purpose is taken
away.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from functools import partial

from bench.figures import option
from bench.forwarding import PLAIN, TARGETS, Way, egressd, iperf_server, measured, report
from bench.sites import Site, alternate, egressd_pids
from egressd.lab.spec import LabSpec

ROUNDS = option("--rounds", 12)
RULES = 10_000


class Turns:
    """A site whose router is plain Linux or runs egressd, whichever was asked for last.

    Begins with egressd running.
    """

    def __init__(self, site: Site) -> None:
        self._site = site
        self._device = site.lab.device
        self._plain: ExitStack | None = None

    def plain(self) -> None:
        """Only forward and masquerade."""
        if self._plain is not None:
            return
        router = self._site.lab.router
        self._device.stop()
        self._site.pids = ()
        router.run("nft", "flush", "ruleset")
        for name in ("lan0", "wan1", "wan2"):
            # Known flows' short way stays on the LAN; it need not be there.
            router.run("tc", "qdisc", "delete", "dev", name, "clsact", check=False)
        router.run("ip", "rule", "flush")
        for priority, table in (("0", "local"), ("32766", "main")):
            # It may be there: ip-rule(8) flushes no rule of priority 0.
            router.run("ip", "rule", "add", "pref", priority, "lookup", table, check=False)
        self._plain = ExitStack()
        self._plain.enter_context(self._site.lab.plain_router())

    def egressd(self) -> None:
        """Run egressd."""
        if self._plain is None:
            return
        self._plain.close()
        self._plain = None
        self._device.start()
        self._site.pids = egressd_pids(self._site.lab)


def main() -> None:
    """All ways, in alternating rounds."""
    with Site(LabSpec(nodes=("ss",), clients=21)) as site, iperf_server(site):
        egressd(site, RULES)
        turns = Turns(site)

        def measure(name: str, take_turn: Callable[[], None], way: Way) -> dict[str, float]:
            take_turn()
            return measured(name, way)

        measures = {PLAIN: partial(measure, PLAIN, turns.plain, Way(site))}
        for target, node in TARGETS.items():
            name = f"egressd {target}, {RULES:,} rules"
            measures[name] = partial(measure, name, turns.egressd, Way(site, node))
        samples = alternate(ROUNDS, measures)
    report("turns", samples)


if __name__ == "__main__":
    main()
