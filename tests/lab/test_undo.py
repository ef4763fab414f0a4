"""Undoing changes on a device with a kernel: clients and the kernel's table are as they were."""

from __future__ import annotations

import json
import random
import re
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest

from egressd.planner.registry import MARK_EPOCH_MASK
from tests.support.device import SERVER, clear, eventually, send

if TYPE_CHECKING:
    from egressd_lab.lab import Lab

pytestmark = [pytest.mark.lab, pytest.mark.usefixtures("nodes")]

WEB = f"http://{SERVER}/"
CHANGES = 20
SEED = 812
VARIES = re.compile(r"packets \d+ bytes \d+| expires \w+| # handle \d+|(?<= : )\d{5}\b")
"""Counters, ages, and the ports of engine instances."""
MARK = re.compile(r"\b0x[0-9a-f]{8}\b")


def seen(lab: Lab, client: int) -> str:
    """Return a client's address as the internet sees it; empty if it is refused."""
    return lab.client(client).http(WEB, timeout=3).seen


def table(lab: Lab) -> list[str]:
    """Return the lines of the kernel's table, without what varies, and without marks' epochs."""
    listed = lab.router.run("nft", "-n", "list", "table", "inet", "egressd").stdout
    return sorted(
        MARK.sub(_without_epoch, VARIES.sub("N", line.strip())) for line in listed.splitlines()
    )


def _without_epoch(mark: re.Match[str]) -> str:
    return hex(int(mark[0], 16) & ~MARK_EPOCH_MASK)


def latest(lab: Lab) -> dict[str, Any]:
    found = json.loads(lab.device.run("changes", "list", "--limit", "1", "--json"))
    change: dict[str, Any] = found["data"][0]
    return change


def undo(lab: Lab, revision: int) -> None:
    lab.device.run("undo", str(revision), "--yes")


def test_a_client_leaves_as_before_its_change(lab: Lab) -> None:
    send(lab, 1, "ss")
    assert seen(lab, 1) == lab.nodes["ss"].address
    send(lab, 1, "REJECT")
    assert seen(lab, 1) == ""
    undo(lab, latest(lab)["revision"])
    assert seen(lab, 1) == lab.nodes["ss"].address


def test_a_deleted_node_serves_its_clients_again(lab: Lab) -> None:
    send(lab, 1, "ss")
    (node,) = [node for node in lab.api.get("/nodes")["data"] if node["name"] == "ss"]
    lab.api.delete(f"/nodes/{node['id']}")
    assert seen(lab, 1) == ""
    undo(lab, latest(lab)["revision"])
    assert seen(lab, 1) == lab.nodes["ss"].address
    assert node in lab.api.get("/nodes")["data"]


def test_random_changes_undone_leave_the_kernels_table(lab: Lab) -> None:
    """But for the whitelist's epoch, ports of engine instances, and counters."""
    chance = random.Random(SEED)
    clear(lab)
    for node in lab.nodes.values():
        lab.api.post("/nodes", node.draft())
    send(lab, 1, "ss")
    send(lab, 2, "Interface:wan2")
    lab.api.put("/whitelist", {"domains": "", "ips": "192.0.2.0/24", "node": "DIRECT"})
    first, before = latest(lab)["revision"], table(lab)
    states = {path: lab.api.get(path)["data"] for path in ("/rules", "/nodes")}
    while (made := latest(lab)["revision"]) < first + CHANGES:
        change(lab, chance)
    assert table(lab) != before
    for revision in range(made, first, -1):
        undo(lab, revision)
    assert {path: lab.api.get(path)["data"] for path in states} == states
    with suppress(AssertionError):  # the difference says more than that it lasts
        eventually(lambda: table(lab) == before, 60)
    assert table(lab) == before
    assert seen(lab, 1) == lab.nodes["ss"].address
    assert seen(lab, 2) == lab.wan(2).address


def change(lab: Lab, chance: random.Random) -> None:
    """Make a random change, or one that changes nothing."""
    targets = ["DIRECT", "REJECT", "Interface:wan1", "ss", "socks5", "http"]
    match chance.randrange(6):
        case 0 | 1:
            known = {node["name"] for node in lab.api.get("/nodes")["data"]}
            target = chance.choice([t for t in targets if t in known or t not in lab.nodes])
            send(lab, chance.randrange(1, 4), target)
        case 2:
            rules = lab.api.get("/rules")["data"]
            if rules:
                lab.api.delete(f"/rules/{chance.choice(rules)['id']}")
        case 3:
            nodes = lab.api.get("/nodes")["data"]
            if nodes:
                lab.api.delete(f"/nodes/{chance.choice(nodes)['id']}")
        case 4:
            known = {node["name"] for node in lab.api.get("/nodes")["data"]}
            for node in lab.nodes.values():
                if node.name not in known:
                    lab.api.post("/nodes", node.draft())
                    return
        case _:
            ips = f"192.0.2.{chance.randrange(200)}"
            lab.api.put("/whitelist", {"domains": "", "ips": ips, "node": "DIRECT"})


def test_changes_on_trial_go_back_over_a_restart(lab: Lab) -> None:
    send(lab, 1, "ss")
    lab.device.run("trial", "start", "--minutes", "1")
    send(lab, 1, "REJECT")
    assert seen(lab, 1) == ""
    lab.device.stop()
    lab.device.start()
    eventually(lambda: seen(lab, 1) == lab.nodes["ss"].address, 90)
    assert "no changes are on trial" in lab.device.run("trial", "status")
