"""One router: egressd and the program it is compared with, in turn.

Two equal labs differ by a tenth, always the same one, so that a ratio of two labs means little for
routers that cost nearly the same. Here the same namespaces, devices, addresses and nodes serve
both. ``forwarding`` measures `bench.forwarding`'s figures with 10,000 rules, against plain Linux;
``limited`` those of a client with a speed limit, against the same limit set by hand with tc(8);
the others measure `bench.nodes`'s, against one hand-written sing-box process. egressd ends before
the other's turn, and the state that it leaves in the kernel on purpose is removed.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from typing import Self

from bench import forwarding, limited, nodes, peers
from bench.arguments import Arguments
from bench.figures import Tables, keep
from bench.sites import Measure, Site, compare, egressd_pids
from egressd.planner.registry import TABLE_TPROXY
from egressd_lab.client import Client
from egressd_lab.lab import Lab
from egressd_lab.spec import OWN_NAMESPACE, LabSpec

ROUNDS = 10
RULES = 10_000
FORWARDING, LIMITED = "forwarding", "limited"
BY_HAND = "plain Linux, limited by hand"

Other = Callable[[Site], AbstractContextManager[None]]
"""A context that makes another program the router for as long as the block takes."""


class Turns:
    """A site whose router is egressd or the other program: the one that was requested last.

    A context manager. Begins with egressd running.
    """

    def __init__(self, site: Site, other: Other) -> None:
        self._site = site
        self._device = site.lab.device
        self._start = other
        self._other: ExitStack | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._other is not None:
            self._other.close()

    def other(self) -> None:
        """Make the other program the router."""
        if self._other is not None:
            return
        self._device.stop()
        clear(self._site)
        self._other = ExitStack()
        self._other.enter_context(self._start(self._site))

    def egressd(self) -> None:
        """Run egressd."""
        if self._other is None:
            return
        self._other.close()
        self._other = None
        clear(self._site)
        self._device.start()
        self._site.pids = egressd_pids(self._site.lab)


def clear(site: Site) -> None:
    """Remove the last program's state from the kernel."""
    router = site.lab.router
    site.pids = ()
    router.run("nft", "flush", "ruleset")
    # The fast path of known flows stays on the LAN.
    router.run(sys.executable, "-m", "egressd.app", "block")
    # Delete all rules but the one of priority 0 (ip-rule(8)), the local table's.
    for family in ("-4", "-6"):
        router.run("ip", family, "rule", "flush")
        router.run("ip", family, "rule", "add", "pref", "32766", "lookup", "main")
    for table in (TABLE_TPROXY, peers.TPROXY_TABLE):
        router.run("ip", "route", "flush", "table", str(table), check=False)


def plain(site: Site) -> AbstractContextManager[None]:
    """Only forward and masquerade."""
    return site.lab.plain_router()


@contextmanager
def peer(site: Site, *, start: Callable[[Lab], Sequence[int]]) -> Iterator[None]:
    """Run a program that consists of the processes that `start` returns."""
    site.pids = pids = start(site.lab)
    try:
        yield
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
            # After this its ports are free; its parent process reaps it.
            os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)


def through_router(given: argparse.Namespace) -> Tables:
    """Compare ways that stay in the kernel."""
    with Site(LabSpec(nodes=("ss",), clients=21)) as site, forwarding.iperf_server(site):
        forwarding.egressd(site, RULES)
        with Turns(site, plain) as turns:
            way = partial(forwarding.Way, site, given.seconds)
            ways = {forwarding.PLAIN: in_turn(turns.other, way().measure)}
            for target, node in forwarding.TARGETS.items():
                name = f"egressd {target}, {RULES:,} rules"
                ways[name] = in_turn(turns.egressd, way(node).measure)
            name = f"egressd DIRECT by a CIDR rule, {RULES:,} rules"
            ways[name] = in_turn(turns.egressd, way("DIRECT", by_network=True).measure)
            return compare(FORWARDING, ways, forwarding.PLAIN, given.rounds)


def through_limits(given: argparse.Namespace) -> Tables:
    """Compare a client with a limit, which the kernel routes."""
    with Site(LabSpec(nodes=("ss",), clients=21)) as site, forwarding.iperf_server(site):
        forwarding.egressd(site, RULES)
        client = site.lab.client(forwarding.CLIENT).address
        with Turns(site, partial(limited.by_hand, client=client)) as turns:
            way = partial(forwarding.Way, site, given.seconds)
            ways = {BY_HAND: in_turn(turns.other, way().measure)}
            for target, node in forwarding.TARGETS.items():
                measure = way(node, kbps=limited.KBPS).measure
                ways[f"egressd {target}, limited"] = in_turn(turns.egressd, measure)
            return compare(LIMITED, ways, BY_HAND, given.rounds)


def through_node(given: argparse.Namespace, *, protocol: str) -> Tables:
    """Compare with one client and one node."""
    with Site(LabSpec(nodes=("ss",) if protocol == "ss" else ())) as site:
        at = nodes.add_node(site.lab, protocol)
        site.pids = nodes.egressd(site.lab, at, protocol=protocol)
        start = partial(nodes.sing_box, at=at, protocol=protocol)
        return against_sing_box(protocol, site, start, [site.lab.client(1)], given)


def through_many_nodes(given: argparse.Namespace) -> Tables:
    """Compare with a node for each of many clients."""
    spec = LabSpec(nodes=(), clients=OWN_NAMESPACE + given.targets)
    with Site(spec) as site:
        addresses = nodes.add_many_nodes(site.lab, given.targets)
        site.pids = nodes.many_egressd(site.lab, addresses)
        start = partial(nodes.many_sing_box, nodes=addresses)
        title, clients = nodes.title_of_many(given.targets), nodes.many_clients(site.lab)
        return against_sing_box(title, site, start, clients, given)


def against_sing_box(
    title: str,
    site: Site,
    start: Callable[[Lab], Sequence[int]],
    clients: Sequence[Client],
    given: argparse.Namespace,
) -> Tables:
    """Compare egressd, which runs, with the process that `start` starts."""
    measure = nodes.Way(site, given.seconds, clients).measure
    with Turns(site, partial(peer, start=start)) as turns:
        ways = {
            nodes.BASE: in_turn(turns.other, measure),
            "egressd": in_turn(turns.egressd, measure),
        }
        return compare(title, ways, nodes.BASE, given.rounds)


def in_turn(take_turn: Callable[[], None], measure: Measure) -> Measure:
    """Return a measure that first takes its turn."""

    def measure_then() -> Mapping[str, float]:
        take_turn()
        return measure()

    return measure_then


COMPARISONS: Mapping[str, Callable[[argparse.Namespace], Tables]] = {
    FORWARDING: through_router,
    LIMITED: through_limits,
    "socks5": partial(through_node, protocol="socks5"),
    "ss": partial(through_node, protocol="ss"),
    "trojan": partial(through_node, protocol="trojan"),
    nodes.MANY: through_many_nodes,
}


def main() -> None:
    """Run all comparisons, or those that the command line names."""
    arguments = Arguments("turns", __doc__)
    arguments.parts(COMPARISONS)
    nodes.add_options(arguments, ROUNDS)
    given = arguments.read()
    tables = {name: COMPARISONS[name](given) for name in given.parts or COMPARISONS}
    keep("turns", tables, given.json)


if __name__ == "__main__":
    main()
