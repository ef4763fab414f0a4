"""A takeover in a pair of boxes: how long clients are without a way out, and what they lose.

| event | the active box |
|---|---|
| power | loses all its cables at once |
| lan | loses its cable to the LAN |
| wan | loses its cable to the second WAN, which a client's rule names |
| stop | gets SIGTERM, as for an upgrade or a reboot |
| keepalived | its keepalived is killed |
| freeze | stops all its processes; its kernel goes on |

Two clients send 50 datagrams a second each, by DIRECT and by a WAN of their own; each also holds a
TCP connection on which it talks, and one on which it is silent. The gap is the longest time between
two datagrams of a client on a WAN; a new TCP connection of each client is tried until both work.
The database is on neither box.
"""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Final, NamedTuple

from bench.arguments import Arguments
from bench.figures import keep, show, spread
from egressd_lab.packets import new_token
from tests.support.device import SERVER, eventually
from tests.support.paired_lab import PairedLab, longest_gap, other, paired_lab

ROUNDS: Final = 20
TARGETS: Final = {1: "DIRECT", 2: "Interface:wan2"}
"""Client -> its target. The first one leaves by the first WAN."""
_RATE: Final = 50.0
_WEB: Final = f"http://{SERVER}/"
_ECHO: Final = 7
_BEFORE_S: Final = 1.0
_AFTER_S: Final = 1.0
_PATIENCE_S: Final = 30.0

Event = Callable[[PairedLab, int], None]
"""Something that happens to the active box."""


class Takeover(NamedTuple):
    """The figures of one event."""

    gap_s: float
    new_s: float
    """Seconds until a new TCP connection of each client has worked."""
    lost: int
    """Connections that ended, of four."""
    wrong: int
    """Packets from a source that no client's may have."""


def power(pair: PairedLab, box: int) -> None:
    pair.lab.topology.power(box, is_on=False)


def lan(pair: PairedLab, box: int) -> None:
    pair.lab.topology.plug_lan(box, is_in=False)


def wan(pair: PairedLab, box: int) -> None:
    pair.lab.topology.plug_wan(box, 2, is_in=False)


def stop(pair: PairedLab, box: int) -> None:
    pair.boxes[box].program.signal(signal.SIGTERM)


def keepalived(pair: PairedLab, box: int) -> None:
    pair.signal(box, signal.SIGKILL, "keepalived")


def freeze(pair: PairedLab, box: int) -> None:
    pair.signal(box, signal.SIGSTOP)


EVENTS: Final[Mapping[str, Event]] = {
    each.__name__: each for each in (power, lan, wan, stop, keepalived, freeze)
}


def take_over(pair: PairedLab, event: Event) -> Takeover:
    """Have one event happen, until clients have been served again for a while."""
    lab, active = pair.lab, pair.active()
    tokens = {client: new_token() for client in TARGETS}
    held = [lab.client(client).connect(SERVER, _ECHO) for client in TARGETS for _ in range(2)]
    for connection in held:
        connection.exchange("before")
    with ExitStack() as stack:
        captures = [
            stack.enter_context(lab.internet.capture(f"isp{wan}", keep=True)) for wan in TARGETS
        ]
        floods = [lab.client(c).flood(token, rate=_RATE) for c, token in tokens.items()]
        time.sleep(_BEFORE_S)
        begun = time.monotonic()
        event(pair, active)
        for client in TARGETS:
            while lab.client(client).http(_WEB, timeout=0.2).error:
                assert time.monotonic() - begun < _PATIENCE_S, (
                    f"client {client} is not served again"
                )
        new_s = time.monotonic() - begun
        lost = sum(bool(connection.exchange("after", _PATIENCE_S).error) for connection in held)
        eventually(lambda: pair.holders().get(other(active), False))
        time.sleep(_AFTER_S)
        for flood in floods:
            flood.stop()
        gaps = [longest_gap(captures[client - 1], token) for client, token in tokens.items()]
        if event is stop:
            pair.boxes[active].stop()  # wait for it
        wrong = sum(
            flow.packets for wan in TARGETS for flow in pair.strangers(wan, captures[wan - 1])
        )
    return Takeover(max(gaps), new_s, lost, wrong)


@contextmanager
def ruled_pair() -> Iterator[PairedLab]:
    """Yield a pair with the clients' rules."""
    with paired_lab() as pair:
        for client, target in TARGETS.items():
            rule = {"ip": pair.lab.client(client).address, "target_node": target}
            pair.boxes[1].api.post("/rules", rule)
            served = partial(pair.lab.client(client).http, _WEB)
            eventually(lambda served=served: not served().error)  # type: ignore[misc]
        yield pair


def main() -> int | None:
    arguments = Arguments("failover", __doc__)
    arguments.parts(EVENTS)
    arguments.number("--rounds", ROUNDS, "takeovers by each event")
    given = arguments.read()
    figures: dict[str, dict[str, dict[str, float]]] = {}
    with ruled_pair() as pair:
        for name in given.parts or EVENTS:
            seen = []
            for _ in range(given.rounds):
                seen.append(take_over(pair, EVENTS[name]))
                pair.mend()
            figures[name] = {
                "gap (s)": spread([each.gap_s for each in seen]),
                "new TCP (s)": spread([each.new_s for each in seen]),
                "connections lost": spread([each.lost for each in seen]),
                "wrong packets": spread([each.wrong for each in seen]),
            }
            show(f"{name}, {given.rounds} rounds", figures[name])
    keep("failover", figures, given.json)
    return None


if __name__ == "__main__":
    sys.exit(main())
