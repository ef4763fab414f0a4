"""The load that a small box has to hold, all at once.

A thousand clients, half of them through 500 nodes and half by the WANs; 10,000 rules, 2,000 nodes;
100,000 tracked flows and 2,000 held connections; beside it a platform that reads 200 times a second
and moves clients 20 times a second. Clients that are not moved must not notice.

``--share 10 --memory 512`` has a tenth of all that on a box with 512 MB: egressd's processes are in
a control group with so much memory, and no swap.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Sequence
from contextlib import ExitStack
from itertools import cycle
from typing import Final

from bench.api import SECONDS, read_and_write
from bench.arguments import Arguments
from bench.changes import address
from bench.figures import keep, show
from bench.memory_group import limited
from bench.meter import used_s
from bench.nodes import SOCKS5, import_nodes
from bench.sites import egressd_pids
from egressd.netd.kernel import memory
from egressd_lab import netns
from egressd_lab.lab import Lab
from egressd_lab.spec import OWN_NAMESPACE, LabSpec
from tests.support.crowd import hold, make_room
from tests.support.netns import JoinedNamespace

RULES: Final = 10_000
NODES: Final = 2_000
USED: Final = 500
CLIENTS: Final = 1_000
FLOWS: Final = 200
"""Flows of each client of a WAN: datagrams to as many ports, so that each is a flow of its own."""
HELD: Final = 4
"""Connections of each client of a node."""
SILENT: Final = "203.0.113.192/26"
NOBODY: Final = "203.0.113.200"
LEAD_S: Final = 20.0
"""Seconds before the platform begins, and after it has ended."""
REFRESH_S: Final = 20.0
"""Seconds between the datagrams of a flow: the kernel forgets an unanswered UDP flow after 30 s."""
TALK_S: Final = 5.0


def main() -> None:
    """Build up the load, measure, and show the figures."""
    arguments = Arguments("load", __doc__)
    arguments.number("--seconds", SECONDS, "seconds of the platform's load")
    arguments.number("--share", 1, "one in so many of the clients, rules, nodes and requests")
    arguments.number("--memory", 0, "the MB that egressd's processes may hold; 0: all")
    given = arguments.read()
    share = given.share
    make_room()
    with ExitStack() as stack:
        group = stack.enter_context(limited(given.memory * 1_000_000)) if given.memory else None
        spec = LabSpec(nodes=(), clients=OWN_NAMESPACE + CLIENTS // share)
        lab = stack.enter_context(Lab(spec))
        if group is None:
            lab.start_egressd()
        else:
            with group.entered():
                lab.start_egressd()
        clients = [client.address for client in lab.clients[OWN_NAMESPACE:]]
        by_wan, by_node = clients[USED // share :], clients[: USED // share]
        configure(lab, by_wan, by_node, share)
        lab.internet.run("ip", "route", "add", "blackhole", SILENT)
        pids = egressd_pids(lab)
        assert group is None or group.pids() >= set(pids), "a process is outside of the group"
        with JoinedNamespace(netns.namespace(lab.name, "crowd")) as crowd:
            lasts_s = given.seconds + 2 * LEAD_S
            flowing = crowd.start(flow, by_wan, lasts_s)
            holding = crowd.start(
                hold, by_node * HELD, lasts_s, period_s=TALK_S, answer_s=TALK_S * 2
            )
            time.sleep(LEAD_S)
            begun, used = time.monotonic(), used_s(pids)
            loads = read_and_write(lab, given.seconds, share)
            busy = (used_s(pids) - used) / (time.monotonic() - begun)
            status = lab.api.get("/system/status")
            held = memory.resident(pids)
            cut = sum(not each.has_lasted for each in holding.result(lasts_s + 60))
            flowing.result(lasts_s)
        found = {
            "tracked flows": status["connections"],
            "connections cut": cut,
            "processors busy with egressd": busy,
            "memory (MB)": held / 1e6,
        }
        if group is not None:
            found |= {
                "peak with page cache (MB)": group.peak() / 1e6,
                "killed for want of memory": group.kills(),
                "processes replaced": len(set(pids) - set(egressd_pids(lab))),
            }
    show(
        f"a platform beside {CLIENTS // share:,} clients, {RULES // share:,} rules,"
        f" {USED // share} nodes (ms)",
        loads,
    )
    show("the device meanwhile", {"": found})
    keep("load", {"loads": loads, "device": found}, given.json)


def configure(lab: Lab, by_wan: Sequence[str], by_node: Sequence[str], share: int) -> None:
    """Import one in `share` of the nodes and rules, first the rules of clients of a WAN."""
    used = lab.add_engine_node("many", [dict(SOCKS5)] * len(by_node))
    spare = (f"198.19.{n // 250}.{n % 250 + 1}" for n in range(NODES // share - len(by_node)))
    import_nodes(lab, [(host, SOCKS5["listen_port"]) for host in (*used, *spare)])
    targets = cycle(("DIRECT", "Interface:wan1", "Interface:wan2"))
    rows = [f"{client},{target}," for client, target in zip(by_wan, targets, strict=False)]
    rows += [f"{client},node{n}," for n, client in enumerate(by_node)]
    rows += [f"{address(n)},REJECT," for n in range(RULES // share)]
    lab.api.post("/rules/import", {"text": "\n".join(rows[: RULES // share]), "replace": True})


# --- The clients' part, in their own namespace. -----------------------------------------------


def flow(sources: Sequence[str], seconds: float) -> None:
    """Keep `FLOWS` flows of each source alive."""
    until = time.monotonic() + seconds
    opened = []
    for source in sources:
        one = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        one.bind((source, 0))
        opened.append(one)
    due = time.monotonic()
    while due < until:
        for one in opened:
            for port in range(1, FLOWS + 1):
                one.sendto(b"flow", (NOBODY, port))
            due += REFRESH_S / len(opened)
            time.sleep(max(0.0, due - time.monotonic()))


if __name__ == "__main__":
    main()
