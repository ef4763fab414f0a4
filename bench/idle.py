"""The memory of egressd's processes at rest, and its start, on a small box's configuration.

10 nodes in use and 100 rules by default. The memory is the proportional set size of each process,
20 s after the last change; engine processes are the workers and the one that tests nodes. A start
ends when the API reports that egressd runs; its CPU time is that of the processes which run then,
and depends less on what else the machine does. The history is recorded: with ``--rest 75`` the
counters have been read for it twice. ``--active N`` adds N clients with a rule each, which send a
datagram every ten seconds meanwhile. With ``--before CHECKOUT``, the egressd of another checkout,
set up by its script/setup, takes turns with this one in the same lab.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Final

from bench import ends, startup
from bench.arguments import Arguments
from bench.commits import AFTER, BEFORE, Commits
from bench.figures import keep
from bench.meter import used_s
from bench.sites import SERVER, Site, compare
from egressd.netd.kernel.memory import resident
from egressd_lab.device import rule_body
from egressd_lab.spec import OWN_NAMESPACE, LabSpec

RULES = 100
NODES = 10
ROUNDS = 3
REST_S = 20.0
"""Seconds from the last change to the look at the memory."""
PARTS = {"netd": "egressd.app netd", "api": "egressd.app api", "engine": "engine.worker"}
"""Process -> a part of its command line."""


_EVERY_S: Final = 10.0
"""Seconds from one datagram of an active client to its next one."""


def measure(site: Site, rest_s: float, active: int = 0) -> dict[str, float]:
    """Stop and start egressd, let it rest beside so many active clients, and return the figures."""
    lab = site.lab
    device = lab.device
    device.stop()
    begun = time.monotonic()
    device.program.start()
    device.wait_healthy()
    found = {"start (s)": time.monotonic() - begun}
    found["start, CPU time (s)"] = used_s(chain.from_iterable(_pids(site).values()))
    rule = lab.api.get("/rules")["data"][0]
    body = rule_body(rule) | {"comment": str(begun)}
    lab.api.put(f"/rules/{rule['id']}", body)
    end = time.monotonic() + rest_s
    while (left := end - time.monotonic()) > 0:
        if active:
            sources = [lab.client(OWN_NAMESPACE + 1 + n).address for n in range(active)]
            site.client(OWN_NAMESPACE + 1, ends.one_each, sources, SERVER)
        time.sleep(min(left, _EVERY_S))
    pids = _pids(site)
    memory = {f"{name} (MB)": resident(its) / 1e6 for name, its in pids.items()}
    found |= memory | {"all (MB)": sum(memory.values())}
    return found | {"engine processes": len(pids["engine"])}


def _pids(site: Site) -> dict[str, list[int]]:
    """Return egressd's processes by name."""
    device = site.lab.device
    pids = {name: device.pids(part) for name, part in PARTS.items()}
    return pids | {"supervisor": [device.program.pid]}


def main() -> None:
    """Measure, and show each figure."""
    arguments = Arguments("idle", __doc__)
    text = "another checkout, to take turns with"
    arguments.add_argument("--before", type=Path, metavar="CHECKOUT", help=text)
    arguments.number("--rules", RULES, "rules")
    arguments.number("--nodes", NODES, "nodes in use")
    arguments.number("--rounds", ROUNDS, "starts of each egressd")
    arguments.number("--rest", REST_S, "seconds of rest")
    arguments.number("--active", 0, "clients that send all the time")
    given = arguments.read()
    with Site(LabSpec(nodes=(), clients=OWN_NAMESPACE + given.active)) as site:
        addresses = startup.add_targets(site.lab, given.nodes)

        def prepare(site: Site) -> None:
            startup.fill(site.lab, addresses, given.rules)
            crowd = (site.lab.client(OWN_NAMESPACE + 1 + n).address for n in range(given.active))
            text = "\n".join(f"{address},DIRECT," for address in crowd)
            if text:
                site.lab.api.post("/rules/import", {"text": text, "replace": False})

        commits = Commits(site, (given.before or Path()).resolve(), prepare)

        def measured(commit: str) -> Mapping[str, float]:
            return commits.measured(commit, partial(measure, site, given.rest, given.active))

        names = (BEFORE, AFTER) if given.before else (AFTER,)
        ways = {name: partial(measured, name) for name in names}
        title = f"{given.rules:,} rules, {given.nodes} nodes in use"
        tables = compare(title, ways, names[0], given.rounds)
    keep("idle", tables, given.json)


if __name__ == "__main__":
    main()
