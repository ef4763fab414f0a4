"""Undo, changes on trial and alerts in a pair of boxes with one configuration."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from egressd.model.pair import Pair
from egressd_lab.packets import new_token
from egressd_lab.process import Program
from egressd_lab.spec import wan_plans
from tests.support.device import SERVER, add_nodes, eventually
from tests.support.paired_lab import PairedLab, other, paired_lab

pytestmark = pytest.mark.lab

SEED = 38
CHANGES = 24
FOLLOWED_S = 30.0
ALERTED_S = 60.0
TRIAL_S = 120.0
"""Seconds in which a trial of a minute has ended, and its changes are gone."""
LISTS = ("/rules", "/nodes", "/vpn-lines", "/proxy-services")


@pytest.fixture(scope="module")
def made(namespaces: None) -> Iterator[PairedLab]:
    with paired_lab() as pair:
        add_nodes(pair.lab)
        yield pair


def put(pair: PairedLab, box: int, client: int, target: str) -> None:
    """Give a client its first rule, at one of the boxes."""
    address = pair.lab.client(client).address
    pair.boxes[box].api.post("/rules", {"ip": address, "target_node": target})


def edit(pair: PairedLab, box: int, client: int, target: str) -> None:
    """Change the target of a client's rule, at one of the boxes."""
    address = pair.lab.client(client).address
    api = pair.boxes[box].api
    (rule,) = [each for each in api.get("/rules")["data"] if each["ip"] == address]
    answer = api.ask("PATCH", f"/ops/rules/{rule['id']}", {"target_node": target})
    assert answer.status == 200, answer.body


def latest(pair: PairedLab, box: int) -> dict[str, Any]:
    """Return the last change of the configuration, as a box lists it."""
    changes = pair.boxes[box].api.ask("GET", "/ops/changes?limit=50").body["data"]
    found: dict[str, Any] = next(each for each in changes if each["revision"] is not None)
    return found


def undo(pair: PairedLab, box: int, revision: int) -> None:
    answer = pair.boxes[box].api.ask("POST", f"/ops/changes/{revision}/undo", {})
    assert answer.status == 200, answer.body


def lists(pair: PairedLab, box: int) -> dict[str, Any]:
    return {path: pair.boxes[box].api.get(path)["data"] for path in LISTS}


def test_a_change_of_one_box_is_undone_at_the_other(pair: PairedLab) -> None:
    active = pair.active()
    standby = other(active)
    node = pair.lab.nodes["socks5"].address
    put(pair, active, 1, "socks5")
    eventually(lambda: pair.seen(1) == node, FOLLOWED_S)
    edit(pair, active, 1, "REJECT")
    eventually(lambda: not pair.seen(1), FOLLOWED_S)
    change = latest(pair, standby)
    assert (change["revision"], change["can_undo"]) == (latest(pair, active)["revision"], True)
    undo(pair, standby, change["revision"])
    # The standby's change is in force at the active box once it is answered.
    assert pair.seen(1) == node
    assert latest(pair, active)["undoes"] == change["revision"]
    # The other way round, by the command line: a rule comes back with its id.
    rules = pair.boxes[active].api.get("/rules")["data"]
    pair.boxes[standby].api.delete(f"/rules/{rules[0]['id']}")
    assert not pair.seen(1)
    pair.boxes[active].run("undo", str(latest(pair, active)["revision"]), "--yes")
    assert pair.boxes[standby].api.get("/rules")["data"] == rules
    assert pair.seen(1) == node


def test_an_undo_of_what_the_other_box_has_changed_is_refused(pair: PairedLab) -> None:
    active = pair.active()
    put(pair, active, 1, "DIRECT")
    edit(pair, active, 1, "REJECT")
    first = latest(pair, active)["revision"]
    edit(pair, other(active), 1, "socks5")
    answer = pair.boxes[active].api.ask("POST", f"/ops/changes/{first}/undo", {})
    assert answer.status == 409
    assert "has been changed by change" in json.dumps(answer.body)
    assert pair.boxes[active].api.get("/rules")["data"][0]["target_node"] == "socks5"


def test_changes_of_both_boxes_are_undone_by_either(pair: PairedLab) -> None:
    """In reverse order, at boxes that alternate otherwise than those of the changes."""
    chance = random.Random(SEED)
    put(pair, 1, 1, "socks5")
    first, before = latest(pair, 1)["revision"], lists(pair, 1)
    assert lists(pair, 2) == before
    while (made := latest(pair, 1)["revision"]) < first + CHANGES:
        change(pair, chance)
    assert lists(pair, 1) == lists(pair, 2) != before
    for revision in range(made, first, -1):
        undo(pair, chance.choice((1, 2)), revision)
    assert lists(pair, 1) == lists(pair, 2) == before
    eventually(lambda: pair.seen(1) == pair.lab.nodes["socks5"].address, FOLLOWED_S)


def change(pair: PairedLab, chance: random.Random) -> None:
    """Make a random change at one of the boxes, or one that is none."""
    api = pair.boxes[chance.choice((1, 2))].api
    ip = pair.lab.client(chance.randrange(1, 4)).address
    target = chance.choice(["DIRECT", "REJECT", "Interface:wan2", "spare"])
    rules = {each["ip"]: each["id"] for each in api.get("/rules")["data"]}
    nodes = {each["name"]: each["id"] for each in api.get("/nodes")["data"]}
    match chance.randrange(4):
        case 0 if ip in rules:
            api.delete(f"/rules/{rules[ip]}")
        case 1 if "spare" in nodes:
            api.delete(f"/nodes/{nodes['spare']}")
        case 1:
            api.post("/nodes", pair.lab.nodes["socks5"].draft() | {"name": "spare"})
        case _ if target == "spare" and "spare" not in nodes:
            return
        case _ if ip in rules:
            answer = api.ask("PATCH", f"/ops/rules/{rules[ip]}", {"target_node": target})
            assert answer.status == 200, answer.body
        case _:
            api.post("/rules", {"ip": ip, "target_node": target})


def test_a_trial_of_a_box_that_dies_goes_back_at_the_other(pair: PairedLab) -> None:
    active = pair.active()
    standby = other(active)
    node = pair.lab.nodes["socks5"].address
    put(pair, active, 1, "socks5")
    eventually(lambda: pair.seen(1) == node, FOLLOWED_S)
    rules = pair.boxes[active].api.get("/rules")["data"]
    assert pair.boxes[active].api.ask("POST", "/ops/trial", {"minutes": 1}).status == 200
    edit(pair, active, 1, "REJECT")
    put(pair, active, 2, "DIRECT")
    assert not pair.seen(1)
    assert pair.boxes[standby].api.ask("GET", "/ops/trial").body["changes"] == 2
    pair.lab.topology.power(active, is_on=False)
    with pair.frozen(active):
        eventually(lambda: pair.active() == standby, FOLLOWED_S)
        # The takeover alone takes nothing back.
        eventually(lambda: pair.seen(2) == wan_plans(pair.lab.spec)[0].shared, FOLLOWED_S)
        assert not pair.seen(1)
        eventually(lambda: pair.seen(1) == node, TRIAL_S)
        assert not pair.seen(2)
        # What is in force is stored a moment later.
        eventually(lambda: pair.boxes[standby].api.get("/rules")["data"] == rules)
        assert not pair.boxes[standby].api.ask("GET", "/ops/trial").body["is_running"]
        assert latest(pair, standby)["who"] == "egressd"
    pair.mend()
    eventually(lambda: pair.boxes[active].api.get("/rules")["data"] == rules)


def test_a_trial_of_one_box_is_confirmed_at_the_other(pair: PairedLab) -> None:
    active = pair.active()
    put(pair, active, 1, "DIRECT")
    assert pair.boxes[active].api.ask("POST", "/ops/trial", {"minutes": 1}).status == 200
    edit(pair, active, 1, "socks5")
    refused = pair.boxes[other(active)].api.ask("POST", "/ops/trial", {"minutes": 1})
    assert refused.status == 409
    assert pair.boxes[other(active)].api.ask("POST", "/ops/trial/confirm", {}).status == 200
    assert not pair.boxes[active].api.ask("GET", "/ops/trial").body["is_running"]
    assert pair.boxes[active].api.get("/rules")["data"][0]["target_node"] == "socks5"


def test_the_active_box_alone_sends_alerts(pair: PairedLab) -> None:
    """Both have seen the node fail, and have the same channel."""
    active = pair.active()
    standby = other(active)
    lab, token = pair.lab, new_token()
    api, node = pair.boxes[standby].api, lab.nodes["socks5"]
    body = {"name": "hook", "url": f"json://{SERVER}/{token}", "via": "DIRECT"}
    channel = api.ask("POST", "/ops/alerts/channels", body).body["id"]
    policy = {"on": ["node.failing"], "for_s": 0, "quiet": "", "channels": []}
    assert api.ask("PUT", "/ops/alerts/policy", policy).status == 200
    put(pair, active, 1, "socks5")
    eventually(lambda: pair.seen(1) == node.address, FOLLOWED_S)
    node.program.stop(10)
    try:
        eventually(lambda: not pair.seen(1) and len(sent(pair, active)) == 1, ALERTED_S)
    finally:
        node.program.start()
    eventually(lambda: len(sent(pair, active)) == 2, ALERTED_S)
    assert [each["outcome"] for each in sent(pair, active)] == ["sent", "sent"]
    assert sent(pair, standby) == []
    posts = [each for each in lab.internet.seen(text=token) if each.text.startswith("POST")]
    plan = wan_plans(lab.spec, active)[0]
    assert len(posts) == 2
    assert {each.source for each in posts} <= {plan.address, plan.shared}
    assert api.ask("DELETE", f"/ops/alerts/channels/{channel}").status == 200


def sent(pair: PairedLab, box: int) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = pair.api(box, "/ops/alerts/sent")
    return found


ROUTER = """\
global_defs {{
  vrrp_version 3
}}
vrrp_instance other {{
  interface eth0
  virtual_router_id {number}
  priority 200
  virtual_ipaddress {{
    10.77.0.200
  }}
}}
"""
"""keepalived's configuration as others have it: by the pair's number, a higher priority than the
boxes have, and adverts for all routers."""


def test_another_keepalived_with_the_pairs_number_is_named(pair: PairedLab, tmp_path: Path) -> None:
    active, number = pair.active(), Pair.router_id
    put(pair, active, 1, "DIRECT")
    client = pair.lab.client(3)
    said = f"{client.address} on lan0 sends VRRP adverts with this pair's number, {number}: "
    file = tmp_path / "keepalived.conf"
    file.write_text(ROUTER.format(number=number))
    file.chmod(0o600)  # keepalived takes no file that may be run
    argv = ["keepalived", "--dont-fork", "--log-console", "--vrrp", "--use-file", str(file)]
    pids = ["--pid", str(tmp_path / "pid"), "--vrrp_pid", str(tmp_path / "vrrp.pid")]
    router = Program(client.host.namespace, [*argv, *pids], tmp_path / "log")
    router.start()
    try:
        eventually(lambda: all(pair.is_reported(box, said) for box in pair.boxes), FOLLOWED_S)
    finally:
        router.stop(10)
    assert pair.active() == active
    assert pair.seen(1) == pair.shared(1)
