"""Growth of cost with rules, targets in use, WANs and proxy services.

Each size is measured after a cold start, which is timed until a client's traffic flows by its rule
and until ``/ops/health`` reports that all is in force. A change is ``PUT /rules/{id}`` of one host
between DIRECT and a WAN, which other hosts use too: otherwise the egress would come and go, at the
additional cost of its routes.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial

from bench import ends, meter
from bench.api import Reader, timed
from bench.arguments import Arguments
from bench.changes import address
from bench.figures import keep, percentile, show
from bench.sites import SERVER, Site
from egressd.netd.kernel.memory import resident
from egressd_lab.client import Client
from egressd_lab.device import API_PREFIX, rule_body
from egressd_lab.lab import Lab
from egressd_lab.spec import LabSpec

CHANGES = 100
READS = 20
RULES = (10, 100, 1_000, 10_000, 50_000)
TARGETS = (1, 10, 100, 200, 500, 1_000)
WANS = (1, 4, 16, 64)
SERVICES = (1, 10, 100, 500)
FIRST_PORT = 11_000
PARTS = {"netd and api": "egressd.app", "workers": "engine.worker"}

Figures = dict[str, float]
Curve = Iterator[tuple[int, Figures]]


def by_rules(sent: int) -> Curve:
    """Measure with host rules for DIRECT and two WANs."""
    with Lab(LabSpec(nodes=())) as lab:
        lab.start_egressd()
        client = lab.client(1)
        for count in RULES:
            rows = [f"{client.address},Interface:wan2,"]
            targets = ("DIRECT", "Interface:wan1", "Interface:wan2")
            rows += [f"{address(n)},{targets[n % 3]}," for n in range(count - 1)]
            import_s = timed(partial(import_rules, lab, rows))
            yield count, {"import (s)": import_s, **point(lab, client, lab.wan(2).address, sent)}


def by_targets(sent: int) -> Curve:
    """Measure with SOCKS5 nodes that each have one client."""
    with Lab(LabSpec(nodes=())) as lab:
        lab.start_egressd()
        inbound = {"type": "socks", "listen_port": 1080}
        nodes = lab.add_engine_node("many", [inbound] * max(TARGETS))
        client = lab.client(1)
        text = "\n".join(f"{node},1080,,,node{n}" for n, node in enumerate(nodes))
        lab.api.post("/nodes/import", {"type": "socks5", "text": text})
        for count in TARGETS:
            rows = [f"{client.address},node0,"]
            rows += [f"{address(n)},node{n}," for n in range(1, count)]
            rows += [f"{address(count)},Interface:wan1,", f"{address(count + 1)},DIRECT,"]
            import_s = timed(partial(import_rules, lab, rows))
            yield count, {"import (s)": import_s, **point(lab, client, nodes[0], sent)}


def by_wans(sent: int) -> Curve:
    """Measure with WANs that each have one client; also the cost of a small packet through them."""
    for count in WANS:
        with Site(LabSpec(nodes=(), wans=count)) as site:
            lab = site.lab
            lab.start_egressd()
            client = lab.client(1)
            rows = [f"{client.address},Interface:wan{count},"]
            rows += [f"{address(n)},Interface:wan{n}," for n in range(1, count + 1)]
            rows += [f"{address(count + 1)},DIRECT,"]
            import_s = timed(partial(import_rules, lab, rows))
            found = point(lab, client, lab.wan(count).address, sent)
            cost = site.client(1, ends.packet_cost, client.address, SERVER)
            yield count, {"import (s)": import_s, **found, "small packet (ns)": cost}


def by_services(sent: int) -> Curve:
    """Measure with proxy services that all leave by the first WAN."""
    with Lab(LabSpec(nodes=())) as lab:
        lab.start_egressd()
        client = lab.client(1)
        targets = ("Interface:wan1", "DIRECT")
        rows = [f"{address(n)},{target}," for n, target in enumerate(targets)]
        import_rules(lab, [f"{client.address},Interface:wan2,", *rows])
        for count in SERVICES:
            text = "\n".join(f"wan1,{FIRST_PORT + n}" for n in range(count))
            body = {"text": text, "replace": True}
            import_s = timed(partial(lab.api.post, "/proxy-services/import", body))
            yield count, {"import (s)": import_s, **point(lab, client, lab.wan(2).address, sent)}


def import_rules(lab: Lab, rows: list[str]) -> None:
    """Replace all rules."""
    body = {"text": "\n".join(rows), "replace": True}
    answer = lab.api.ask("POST", f"{API_PREFIX}/rules/import", body, timeout=300)
    assert answer.body.get("imported") == len(rows), answer


def point(lab: Lab, client: Client, exit_address: str, sent: int) -> Figures:
    """Measure a cold start, then memory, `sent` changes and lists."""
    lab.device.stop()
    begun = time.monotonic()
    lab.device.program.start()
    while client.http(f"http://{SERVER}/", timeout=0.2).seen != exit_address:
        pass
    flows = time.monotonic() - begun
    lab.device.wait_healthy(300)
    healthy = time.monotonic() - begun
    parts = {name: lab.device.pids(pattern) for name, pattern in PARTS.items()}
    return {
        "traffic flows (s)": flows,
        "healthy (s)": healthy,
        "start's CPU (s)": meter.used_s(pid for pids in parts.values() for pid in pids),
        **{f"{name} (MB)": resident(pids) / 1e6 for name, pids in parts.items()},
        **changes(lab, sent),
        **lists(lab),
    }


def changes(lab: Lab, count: int) -> Figures:
    """Return the milliseconds of one host's change, and of CPU time that it costs in
    all processes.
    """
    rule = lab.api.get("/rules")["data"][-1]
    body = rule_body(rule)
    api, samples = Reader(lab), []
    pids = [pid for pattern in PARTS.values() for pid in lab.device.pids(pattern)]
    before = meter.used_s(pids)
    for number in range(count):
        sent = {**body, "target_node": ("Interface:wan1", "DIRECT")[number % 2]}
        samples.append(timed(partial(api.call, "PUT", f"/rules/{rule['id']}", sent)))
    return {
        "change p50 (ms)": percentile(samples, 0.5) * 1000,
        "change p99 (ms)": percentile(samples, 0.99) * 1000,
        "change's CPU (ms)": (meter.used_s(pids) - before) * 1000 / count,
    }


def lists(lab: Lab) -> Figures:
    """Return the cost of reading."""
    reader = Reader(lab)
    size = reader.fetch("/rules")[2]
    whole = [timed(lambda: reader.fetch("/rules")) for _ in range(READS)]
    status = [timed(lambda: reader.fetch("/system/interfaces")) for _ in range(READS)]
    return {
        "GET /rules (ms)": percentile(whole, 0.5) * 1000,
        "GET /rules (MB)": size / 1e6,
        "GET /system/interfaces (ms)": percentile(status, 0.5) * 1000,
    }


CURVES: Mapping[str, Callable[[int], Curve]] = {
    "rules": by_rules,
    "targets": by_targets,
    "wans": by_wans,
    "services": by_services,
}


def main() -> None:
    """Measure the curves that the command line names, or all."""
    arguments = Arguments("scale", __doc__)
    arguments.parts(CURVES)
    arguments.number("--changes", CHANGES, "changes at each size")
    given = arguments.read()
    curves: dict[str, dict[str, Figures]] = {}
    for name in given.parts or CURVES:
        curves[name] = {}
        for count, figures in CURVES[name](given.changes):
            curves[name][str(count)] = figures
            print(name, count, {k: round(v, 2) for k, v in figures.items()}, file=sys.stderr)
        show(f"as {name} grow", curves[name])
    keep("scale", curves, given.json)


if __name__ == "__main__":
    main()
