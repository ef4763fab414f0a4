"""A pair is upgraded box by box to an egressd with another schema: as docs/pair.md says."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from egressd import __version__
from egressd.model.errors import Failed
from egressd_lab.packets import new_token
from egressd_lab.spec import wan_plans
from tests.support import postgres
from tests.support.device import SERVER, eventually
from tests.support.next_schema import VERSION, NextRelease
from tests.support.paired_lab import PairedLab, longest_gap, other, paired_lab

pytestmark = pytest.mark.lab

TARGETS = {1: "DIRECT", 2: "Interface:wan2"}
"""Client -> its target. It leaves by the WAN of the same number."""
LATER, UNRULED = 3, 4
"""The client that gets a rule meanwhile, and the one that has none."""
RATE = 50.0
GAP_S = 1.0
"""Seconds without a datagram at most. On an idle machine there are 0.04."""
SERVICE = {
    "name": "office",
    "outbound_interface": "wan1",
    "port": 18080,
    "username": "u",
    "password": "long enough",
}


@pytest.fixture(scope="module")
def made(namespaces: None) -> Iterator[PairedLab]:
    with paired_lab(clients=UNRULED) as pair:
        yield pair


def rule(pair: PairedLab, box: int, client: int, target: str) -> None:
    """Give a client a rule, at one of the boxes."""
    address = pair.lab.client(client).address
    pair.boxes[box].api.post("/rules", {"ip": address, "target_node": target})


def rules(pair: PairedLab, box: int) -> dict[str, str]:
    return {each["ip"]: each["target_node"] for each in pair.boxes[box].api.get("/rules")["data"]}


def test_a_pair_is_upgraded_box_by_box_with_a_migration(pair: PairedLab) -> None:
    lab, owner = pair.lab, pair.database.conninfo(postgres.OWNER)
    older = pair.active()
    newer = other(older)
    shared = {plan.number: plan.shared for plan in wan_plans(lab.spec)}
    release = NextRelease(lab.folder / "next")
    for client, target in TARGETS.items():
        rule(pair, older, client, target)
        eventually(lambda client=client: pair.seen(client) == shared[client])  # type: ignore[misc]
    tokens = {client: new_token() for client in (*TARGETS, UNRULED)}
    with ExitStack() as stack:
        captures = {
            wan: stack.enter_context(lab.internet.capture(f"isp{wan}", keep=True))
            for wan in TARGETS
        }
        floods = [lab.client(c).flood(token, rate=RATE) for c, token in tokens.items()]
        connections = {client: lab.client(client).connect(SERVER, 7) for client in TARGETS}

        # The box on standby. Without the migration it has no lease, and says what it needs.
        pair.boxes[newer].stop()
        release.install(pair.boxes[newer])
        pair.boxes[newer].program.start()
        eventually(lambda: is_up(pair, newer), 60)
        eventually(lambda: pair.is_reported(newer, "run egressd cluster migrate"), 30)
        rule(pair, older, LATER, "REJECT")
        migrate = ("cluster", "migrate", "--owner", owner)
        said = lab.routers[newer - 1].run(*release.command(pair.boxes[newer], *migrate)).stdout
        assert "the database has the newest schema" in said
        pair.boxes[newer].wait_healthy()
        eventually(lambda: pair.roles() == {older: "active", newer: "standby"}, 30)
        versions = {each["name"]: each["version"] for each in pair.api(newer, "/ops/members")}
        assert versions == {f"box{older}": __version__, f"box{newer}": VERSION}

        # The older one serves its clients and follows the newer one. It changes nothing.
        eventually(lambda: pair.is_reported(older, "upgrade this box"), 30)
        with pytest.raises(Failed, match=r"500: .*upgrade this box"):
            rule(pair, older, UNRULED, "DIRECT")
        (later,) = (
            r for r in pair.boxes[newer].api.get("/rules")["data"] if "REJECT" in r.values()
        )
        patch = {"target_node": "DIRECT"}
        answer = pair.boxes[newer].api.ask("PATCH", f"/ops/rules/{later['id']}", patch)
        assert answer.status == 200, answer.body
        assert pair.seen(LATER) == shared[1]
        assert pair.active() == older
        assert rules(pair, older) == rules(pair, newer)
        with pytest.raises(Failed, match=rf"500: .*box{older} has an older egressd"):
            pair.boxes[newer].api.post("/proxy-services", SERVICE)

        # The other box hands over by its end.
        pair.boxes[older].stop()
        eventually(lambda: pair.active() == newer, 30)
        release.install(pair.boxes[older])
        pair.boxes[older].start()
        eventually(lambda: pair.roles() == {newer: "active", older: "standby"}, 30)
        pair.boxes[older].api.post("/proxy-services", SERVICE)
        assert not pair.is_reported(older, "upgrade")
        for client, connection in connections.items():
            assert connection.exchange("after", 20).seen == shared[client]
        for flood in floods:
            flood.stop()
        for client in TARGETS:
            gap = longest_gap(captures[client], tokens[client])
            print(f"client {client} was without a way out for {gap:.2f} s")
            assert gap < GAP_S
        for wan, capture in captures.items():
            assert pair.strangers(wan, capture) == []
            for client, token in tokens.items():
                assert client == wan or not capture.flows(token, outgoing=False)
    assert rules(pair, older) == rules(pair, newer)
    assert rules(pair, older)[lab.client(LATER).address] == "DIRECT"


def is_up(pair: PairedLab, box: int) -> bool:
    """True if a box answers, whether or not it has a lease."""
    try:
        return pair.boxes[box].api.ask("GET", "/ops/health", timeout=5).status in (200, 503)
    except Failed:
        return False
