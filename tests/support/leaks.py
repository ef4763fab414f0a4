"""The leak rig: clients that flood during an event, and a judge over every upstream.

One capture sees all interfaces of the internet's side: every WAN's far end and every node's link.
Each client's packets carry a token that stands for it and for its allowed egresses at the time;
`egressd_lab.chaos.judge` checks each captured token against them. The capture must first show that
it works.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Final

from egressd.model.names import GROUP_PREFIX
from egressd_lab.capture import Capture
from egressd_lab.chaos.cast import Sender
from egressd_lab.chaos.judge import Era, Judge
from egressd_lab.lab import Lab
from egressd_lab.observed import ProbeResult
from egressd_lab.packets import new_token
from tests.support.device import eventually, send

RATES: Final[Mapping[str, float]] = {"udp": 300, "icmp": 100, "tcp": 100}
BACK_WITHIN_S: Final = 30.0


def exits_of(lab: Lab, target: str) -> frozenset[str]:
    """Return the source addresses that a client with this target may have outside: those of a
    group are its present members'.
    """
    if target in lab.nodes:
        return frozenset({lab.nodes[target].address})
    if target.startswith(GROUP_PREFIX):
        group = lab.api.ask("GET", f"/ops/groups/{target.removeprefix(GROUP_PREFIX)}").body
        members = (each["target"] for each in group["resolved"])
        return frozenset[str]().union(*(exits_of(lab, member) for member in members))
    wans = {f"Interface:{wan.interface}": wan.address for wan in lab.wans}
    wans["DIRECT"] = lab.wan(1).address
    return frozenset({wans[target]} if target in wans else ())


class Watch:
    """Flooding clients, by number, and the packets of each that the captures may show."""

    def __init__(self, lab: Lab, capture: Capture) -> None:
        self._lab = lab
        self._capture = capture
        self.judge = Judge(
            {wan.far: wan.address for wan in lab.wans},
            {node.link: node.address for node in lab.nodes.values()},
        )
        self.senders: dict[int, Sender] = {}
        self._next: dict[int, frozenset[str]] = {}

    def begin(self, client: int, target: str) -> None:
        """Let a client flood whose rule has that target already."""
        sender = Sender(self._lab.client(client), self.judge, RATES)
        self.senders[client] = sender
        sender.begin(exits_of(self._lab, target))

    def move(self, client: int, target: str) -> None:
        """Give a flooding client another target by the API."""
        self.expect(client, target)
        send(self._lab, client, target)
        self.settle(client)

    def expect(self, client: int, target: str) -> None:
        """Allow a client to leave by that target too from now on."""
        self._next[client] = exits_of(self._lab, target)
        self.senders[client].expect_change(self._next[client])

    def settle(self, client: int) -> None:
        """Mark the expected change as answered, which the old flood must obey, and start a new
        flood.
        """
        self.senders[client].answered()
        self.senders[client].begin(self._next.pop(client))

    def every_way(self, client: int) -> dict[str, ProbeResult]:
        """Let a client try every known egress at once, under the same judge."""
        token = new_token()
        self.judge.eras[token] = Era(
            client=f"client{client}",
            token=token,
            exits=self.senders[client].exits,
        )
        for protocol in (47, 50, 132):  # GRE, ESP, SCTP
            self._lab.client(client).raw(
                self._lab.client(client).address, "203.0.113.10", protocol=protocol, text=token
            )
        return self._lab.client(client).every_way(token)

    def recovers(self, *clients: int) -> None:
        """Wait until all of them reach the internet by their targets or are blocked."""
        for client in clients:
            sender = self.senders[client]
            eventually(partial(_is_as_it_should_be, sender), BACK_WITHIN_S)

    def leaks(self) -> list[str]:
        """Return the packets that left where they should not have."""
        return [breach.what for breach in self.judge.judge(self._capture.read().flows)]


def _is_as_it_should_be(sender: Sender) -> bool:
    return not sender.reaches()


@contextmanager
def watched(lab: Lab, targets: Mapping[int, str]) -> Iterator[Watch]:
    """Run the block while clients flood, then judge. `targets`: client -> its rule's target.

    The rules are made first; an empty target is a client without one.
    """
    for client, target in targets.items():
        if target:
            send(lab, client, target)
    with lab.internet.capture() as capture:
        capture.prove()
        watch = Watch(lab, capture)
        for client, target in targets.items():
            watch.begin(client, target)
        try:
            yield watch
        finally:
            for sender in watch.senders.values():
                sender.stop()
        assert sum(sender.sent for sender in watch.senders.values()) > 10, "nothing was sent"
        leaks = watch.leaks()
        assert not leaks, "\n".join(leaks)
