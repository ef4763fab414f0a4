"""The members of groups, each of which dies and comes back while clients flood."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple

from egressd_lab.capture import Capture
from egressd_lab.chaos.judge import Era, Judge
from egressd_lab.client import Flood
from egressd_lab.lab import Lab
from egressd_lab.packets import new_token
from egressd_lab.spec import DISCARD_PORT
from tests.support.device import SERVER, eventually, rule, send

CHECK: Final = f"http://{SERVER}/generate_204"
INTERVAL_S: Final = 5
"""Seconds between checks, the fewest that a group takes."""
SOON_S: Final = 30.0
GROUPS: Final = {"kept": "keep", "cut": "cut"}
"""Groups of the same members, with the fate of open connections when another one is chosen."""
RATES: Final = {"udp": 1000, "icmp": 50, "tcp": 50}
"""Packets a second of each client."""
INNER: Final = "lo"
"""The interface by which the internet's hosts send errors to each other, with tokens in them."""
MINUTE_S: Final = 60.0
CHANGES: Final = 200
"""Deaths and returns of a long round."""
PACKETS: Final = 1_000_000
"""Captured packets of a long round, at least."""


class Way(NamedTuple):
    """A member of the groups, and how it dies and comes back."""

    target: str
    exit: str
    """The address that servers see."""
    dies: Sequence[Callable[[], object]]
    """Ways to die."""
    returns: Sequence[Callable[[], object]]
    """The return from each of them."""


def make_groups(lab: Lab, ways: Sequence[Way]) -> None:
    """Make the groups with these members in their order, each with the rule of a client."""
    for name, on_switch in GROUPS.items():
        body = {
            "name": name,
            "strategy": "fallback",
            "on_switch": on_switch,
            "members": [way.target for way in ways],
            "check_url": CHECK,
            "check_interval_s": INTERVAL_S,
        }
        made = lab.api.ask("POST", "/ops/groups", body)
        assert made.status == 201, made.body
    send(lab, 1, "Group_kept")
    rule(lab, f"{lab.client(2).address}/31", "Group_cut")


class Members:
    """The members, and two clients that flood meanwhile, each in a group of its own.

    `links`: interface at the internet of a WAN or line -> its address.
    """

    def __init__(
        self,
        lab: Lab,
        capture: Capture,
        ways: Sequence[Way],
        links: Mapping[str, str],
        *,
        udp_port: int = DISCARD_PORT,
    ) -> None:
        self._lab = lab
        self._capture = capture
        self._ports = {"udp": udp_port}
        self.ways = ways
        self.changes = 0
        """Deaths and returns until now."""
        self._returns: dict[str, Callable[[], object]] = {}
        """Member that is dead -> its return."""
        self._current = self.ways[0]
        self._failback: int | str = "at_once"
        self._judge = Judge(links, {node.link: node.address for node in lab.nodes.values()})
        self._clients = [lab.client(number) for number in (1, 2)]
        self._floods: list[Flood] = []
        self._tokens: list[str] = []
        """The tokens of the present floods, by client."""

    def go_back(self, failback: int | str) -> None:
        """Let clients go back to a better member by that setting of their groups."""
        self._failback = failback
        for name in GROUPS:
            answer = self._lab.api.ask("PATCH", f"/ops/groups/{name}", {"failback": failback})
            assert answer.status == 200, answer.body
        self.settle()

    def die(self, place: int, how: int = 0) -> None:
        """Let the member at that place die, in one of its ways."""
        way = self.ways[place]
        way.dies[how]()
        self._returns[way.target] = way.returns[how]
        self.changes += 1
        self.settle()

    def live(self, place: int) -> None:
        """Let the member at that place come back."""
        self._returns.pop(self.ways[place].target)()
        self.changes += 1
        self.settle()

    def change(self, draw: random.Random) -> None:
        """Let any member die, or come back if it is dead."""
        place = draw.randrange(len(self.ways))
        way = self.ways[place]
        if way.target in self._returns:
            self.live(place)
        else:
            self.die(place, draw.randrange(len(way.dies)))

    def return_late(self, place: int) -> None:
        """Let the member at that place come back, and clients return to it after a minute."""
        began = time.monotonic()
        self.live(place)
        self._current = self.ways[place]
        eventually(lambda: self._leave_by(self._current.exit), MINUTE_S + SOON_S)
        assert time.monotonic() - began > MINUTE_S
        self.settle()

    def settle(self) -> None:
        """Wait until new flows leave by the member that they should, and the device knows which
        members live; then let each client flood by another flow.
        """
        living = [way for way in self.ways if way.target not in self._returns]
        if living and (self._failback == "at_once" or self._current not in living):
            self._current = living[0]
        wanted = self._current.exit if living else ""
        eventually(lambda: self._leave_by(wanted), SOON_S)
        eventually(partial(self._is_known, {way.target for way in living}), SOON_S)
        assert self._leave_by(wanted), "it does not go on so"
        self._flood_anew()
        if wanted:
            eventually(lambda: all(self._floods_by(token, wanted) for token in self._tokens))

    def _leave_by(self, exit_: str) -> bool:
        """True if requests of both clients leave by `exit_`; if that is empty, if all fail."""
        replies = [client.http(f"http://{SERVER}/", timeout=1) for client in self._clients]
        return all(reply.seen == exit_ and reply.ok == bool(exit_) for reply in replies)

    def _is_known(self, alive: set[str]) -> bool:
        """True if the device knows of each member whether it is one of `alive`."""
        return all(
            bool(each["is_alive"]) == (each["target"] in alive)
            for name in GROUPS
            for each in self._lab.api.ask("GET", f"/ops/groups/{name}").body["resolved"]
        )

    def _flood_anew(self) -> None:
        self._stop_floods()
        exits = frozenset(way.exit for way in self.ways)
        for client in self._clients:
            token = new_token()
            self._judge.eras[token] = Era(client=client.name, token=token, exits=exits)
            self._floods += [
                client.flood(token, kind=kind, rate=rate, port=self._ports.get(kind, DISCARD_PORT))
                for kind, rate in RATES.items()
            ]
            self._tokens.append(token)

    def _stop_floods(self) -> None:
        for flood in self._floods:
            flood.stop()
        self._floods, self._tokens = [], []

    def _floods_by(self, token: str, exit_: str) -> bool:
        return any(flow.source == exit_ for flow in self._capture.flows(token))

    def count(self) -> int:
        """Return the number of captured packets that clients sent."""
        flows = self._capture.read().flows
        return sum(f.packets for f in flows if f.token in self._judge.eras and not f.outgoing)

    def close(self) -> list[str]:
        """End the floods, and let all members live. Return the packets that left by no member."""
        self._stop_floods()
        for target in [*self._returns]:
            self._returns.pop(target)()
        flows = [flow for flow in self._capture.read().flows if flow.interface != INNER]
        return [breach.what for breach in self._judge.judge(flows)]
