"""A thousand clients of a sticky group of 50 members, half of them WANs and half nodes: when
members are added, put in another order and removed, and clients rotated, no client moves that need
not (P3).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import pytest

from egressd_lab import netns
from egressd_lab.lab import Lab
from egressd_lab.nodes import PASSWORD, USER
from egressd_lab.spec import OWN_NAMESPACE, LabSpec
from tests.support.crowd import Seen, hold_until_told, make_room, seen_by_tcp
from tests.support.device import SERVER, eventually
from tests.support.netns import JoinedNamespace

pytestmark = pytest.mark.lab

CLIENTS: Final = 1_000
MEMBERS: Final = 50
ADDED: Final = 6
KINDS: Final = 2
"""Kinds of members: WANs and nodes, in turns."""
NODES: Final = (MEMBERS + ADDED) // KINDS
WANS: Final = range(2, 2 + NODES)
"""Numbers of the WANs that are members; the first WAN is none."""
ROTATED: Final = range(3, CLIENTS, 100)
PORT: Final = 1080
ANSWER_S: Final = 60.0
PERIOD_S: Final = 0.5


class Crowd:
    """The group, and the clients in it."""

    def __init__(self, lab: Lab, network: JoinedNamespace) -> None:
        self._lab = lab
        self.network = network
        self.clients = [client.address for client in lab.clients[OWN_NAMESPACE:]]
        nodes = _add_nodes(lab)
        wans = {f"Interface:wan{number}": lab.wan(number).address for number in WANS}
        pairs = zip(wans.items(), nodes.items(), strict=True)
        self.exits = dict(each for pair in pairs for each in pair)
        """Each member, also those that are added later, and the address that servers see."""
        self.members = [*self.exits][:MEMBERS]
        self._ask("POST", "/ops/groups", name="g", strategy="sticky", **self._settings())
        rows = "\n".join(f"{client},Group_g," for client in self.clients)
        lab.api.post("/rules/import", {"text": rows, "replace": True})

    def seen(self) -> Seen:
        """Return the address that the server sees of each client's new connection."""
        return self.network.run_async(seen_by_tcp, self.clients, ANSWER_S)

    def change(self, members: Sequence[str]) -> None:
        """Give the group other members, or another order."""
        self.members = [*members]
        self._ask("PATCH", "/ops/groups/g", **self._settings())

    def rotate(self, client: str) -> None:
        """Give a client another member."""
        assert self._ask("POST", "/ops/groups/g/rotate", client=client)["clients"] == 1

    def _settings(self) -> dict[str, Any]:
        # A member that answers late on a busy machine must not count as dead.
        check = {"check_url": f"http://{SERVER}/generate_204", "check_interval_s": 300}
        return {**check, "members": self.members}

    def _ask(self, method: str, path: str, **body: Any) -> Any:
        answer = self._lab.api.ask(method, path, body)
        assert answer.status in (200, 201), answer.body
        return answer.body


def _add_nodes(lab: Lab) -> dict[str, str]:
    """Start the nodes, make them the device's, and return their names with their addresses."""
    users = [{"username": USER, "password": PASSWORD}]
    inbound = {"type": "socks", "listen_port": PORT, "users": users}
    addresses = lab.add_engine_node("many", [inbound] * NODES)
    nodes = {f"n{number}": address for number, address in enumerate(addresses)}
    login = f"port: {PORT}, username: {USER}, password: {PASSWORD}, udp: true"
    rows = [f"name: {n}, type: socks5, server: {address}, {login}" for n, address in nodes.items()]
    lab.api.post("/nodes/import", {"type": "others", "text": "\n".join(rows)})
    return nodes


@pytest.fixture(scope="module")
def crowd(namespaces: None) -> Iterator[Crowd]:
    make_room()
    spec = LabSpec(nodes=(), clients=OWN_NAMESPACE + CLIENTS, wans=WANS.stop - 1)
    with Lab(spec) as lab:
        lab.start_egressd()
        with JoinedNamespace(netns.namespace(lab.name, "crowd")) as network:
            yield Crowd(lab, network)


def test_p3_no_client_of_a_sticky_group_moves_that_need_not(crowd: Crowd, tmp_path: Path) -> None:
    first = crowd.seen()
    assert Counter(first.values()) == {
        crowd.exits[member]: CLIENTS // MEMBERS for member in crowd.members
    }
    holding = crowd.network.start(
        hold_until_told, crowd.clients, tmp_path, period_s=PERIOD_S, answer_s=ANSWER_S
    )
    try:
        eventually((tmp_path / "begun").exists, 2 * ANSWER_S)
        crowd.change([*crowd.exits])
        assert crowd.seen() == first, "members came"
        crowd.change(crowd.members[::-1])
        assert crowd.seen() == first, "they are in another order"
        rotated = {crowd.clients[number] for number in ROTATED}
        for client in sorted(rotated):
            crowd.rotate(client)
        second = crowd.seen()
        assert {client for client in first if second[client] != first[client]} == rotated
        gone = crowd.members[::11]
        crowd.change([member for member in crowd.members if member not in gone])
        exits = {crowd.exits[member] for member in gone}
        third = crowd.seen()
        moved = {client for client in first if third[client] != second[client]}
        assert moved == {client for client in first if second[client] in exits}
        assert set(third.values()) <= {crowd.exits[member] for member in crowd.members}
    finally:
        (tmp_path / "end").touch()
    held = dict(zip(crowd.clients, holding.result(2 * ANSWER_S), strict=True))
    assert {client: each.seen for client, each in held.items()} == first
    cut = {client for client, each in held.items() if not each.has_lasted}
    assert cut == {client for client in first if first[client] in exits}
