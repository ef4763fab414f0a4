"""A group of WANs beside one of its WANs: forwarding, and a change of its order.

One router, in turns: the rule of the client that sends names the group or the WAN. Then, with
10,000 rules of which 1,000 name the group, and 100 open flows through it, the order of its members
is changed again and again, and in turns with it another client's rule. The open flows stay
(``on_switch`` is ``keep``); those that ended are counted.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Mapping
from typing import Final

from bench.arguments import Arguments
from bench.changes import Connection, Mover, address
from bench.figures import keep, show, spread
from bench.forwarding import CLIENT, SETTLE_S, Way, iperf_server
from bench.sites import Site, compare, egressd_pids
from egressd_lab.lab import Lab
from egressd_lab.spec import LabSpec

ROUNDS: Final = 12
SECONDS: Final = 2
CHANGES: Final = 100
TURN: Final = 10
"""Changes of one kind in a row."""
RULES: Final = 10_000
OF_GROUP: Final = 1_000
FLOWS: Final = 100
WANS: Final = ("Interface:wan1", "Interface:wan2")
GROUP: Final = "Group_wans"
SITE: Final = "http://203.0.113.10/generate_204"


def main() -> None:
    """Measure both."""
    arguments = Arguments("groups", __doc__)
    arguments.number("--rounds", ROUNDS, "rounds of the comparison")
    arguments.number("--seconds", SECONDS, "seconds of each transfer")
    arguments.number("--changes", CHANGES, "changes of the order, and of the rule")
    given = arguments.read()
    with Site(LabSpec(clients=21, nodes=("ss",))) as site:
        with iperf_server(site):
            device(site)
            ways = {name: Way(site, given.seconds, name).measure for name in (WANS[0], GROUP)}
            tables = compare("groups", ways, WANS[0], given.rounds)
        rows = orders(site.lab, given.changes)
    show("a change of the group's order, and of one client's rule (ms)", rows)
    keep("groups", {**tables, "changes": rows}, given.json)


def device(site: Site) -> None:
    """Run egressd with all rules and the group."""
    lab = site.lab
    lab.start_egressd()
    lab.api.post("/nodes", lab.nodes["ss"].draft())
    body = {"name": GROUP.removeprefix("Group_"), "strategy": "fallback", "members": WANS}
    made = lab.api.ask("POST", "/ops/groups", {**body, "check_url": SITE})
    assert made.status == 201, made.body
    rows = [f"{lab.client(CLIENT).address},DIRECT,"]
    rows += [f"{lab.client(number).address},{GROUP}," for number in range(2, 22)]
    rows += [f"{address(n)},{GROUP}," for n in range(OF_GROUP - 20)]
    rows += [f"{address(n)},DIRECT," for n in range(OF_GROUP, RULES)]
    lab.api.post("/rules/import", {"text": "\n".join(rows), "replace": True})
    site.pids = egressd_pids(lab)


def orders(lab: Lab, changes: int) -> Mapping[str, Mapping[str, float]]:
    """Change the group's order and one client's rule in turns."""
    flows = [lab.client(2 + n % 20).connect() for n in range(FLOWS)]
    mover, api = Mover(lab), Connection(lab)
    path = f"/groups/{GROUP.removeprefix('Group_')}"
    of_rule: list[float] = []
    of_group: list[float] = []
    orders = itertools.cycle((WANS[::-1], WANS))
    for _ in range(0, changes, TURN):
        of_rule += mover.moved(TURN)
        time.sleep(SETTLE_S)
        for order in itertools.islice(orders, TURN):
            begun = time.perf_counter()
            api.call("PATCH", path, {"members": order}, "/ops")
            of_group.append((time.perf_counter() - begun) * 1000)
        time.sleep(SETTLE_S)
    ended = sum(not flow.exchange("still there").ok for flow in flows)
    for flow in flows:
        flow.close()
    return {
        "one client's rule": spread(of_rule),
        "the group's order": {**spread(of_group), "flows ended": ended},
    }


if __name__ == "__main__":
    main()
