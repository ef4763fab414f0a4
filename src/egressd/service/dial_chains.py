"""Chains: a node dials through its relay, which may dial through another; a line likewise."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import dropwhile

from egressd.model.bounds import RELAYS_MAX
from egressd.model.desired import DesiredState
from egressd.model.faults import Fault, fault
from egressd.model.names import AUTO
from egressd.model.wording import Sentence, say
from egressd.planner.nodes import fault_of, outbound_of, settings_of
from egressd.planner.outbounds import OVER_UDP, TUNNELS


def relay_problems(
    state: DesiredState, names: Iterable[str], field: str = "dialer_proxy"
) -> Iterator[Fault]:
    """Yield why the nodes of these names, as they are in `state`, could not be dialled.

    `field` is the name of the field for their relay.
    """
    yield from _chains(field, names, lambda name: _relay(state, name))
    for name in names:
        relay = state.node_named(_relay(state, name))
        node = state.node_named(name)
        if relay is None:
            if missing := _relay(state, name):
                yield unknown_relay(missing, field)
        elif relay.protocol in TUNNELS:
            yield fault(field, "relay-tunnel", name=relay.name, protocol=relay.protocol)
        elif (
            node
            and node.protocol in OVER_UDP
            and not fault_of(relay)
            and not outbound_of(relay).udp
        ):
            yield fault(field, "relay-without-udp", protocol=node.protocol, name=relay.name)


def unknown_relay(name: str, field: str = "dialer_proxy") -> Fault:
    """Return the fault of a relay that does not exist."""
    return fault(field, "relay-missing", name=name)


def carrier_problems(state: DesiredState, names: Iterable[str]) -> Iterator[Fault]:
    """Yield why the lines of these names could not be dialled: each would carry the other."""
    return _chains("interface", names, lambda name: _carrier(state, name))


def circles(state: DesiredState) -> Iterator[Sentence]:
    """Yield every circle of relays, and of lines that carry each other. Each node is read once.

    Chains that are too long are not reported: they arise when the far end of one is changed.
    """
    for field, names, after in (
        ("nodes: dialer_proxy", sorted(state.node_by_name), _relay),
        ("lines: interface", sorted(state.line_by_name), _carrier),
    ):
        passed: set[str] = set()
        for name in names:
            chain: dict[str, None] = {}
            here = name
            while here and here not in passed and here not in chain:
                chain[here] = None
                here = after(state, here)
            if here in chain:
                circle = dropwhile(here.__ne__, chain)
                yield say("relay-circle", field=field, circle=" -> ".join((*circle, here)))
            passed |= chain.keys()


def _chains(field: str, names: Iterable[str], after: Callable[[str], str]) -> Iterator[Fault]:
    for name in names:
        chain = [name]
        while (following := after(chain[-1])) and following not in chain:
            if len(chain) > RELAYS_MAX:
                yield fault(field, "relay-chain", most=RELAYS_MAX)
                break
            chain.append(following)
        if following == name:
            yield fault(field, "relay-circle", circle=" -> ".join((*chain, name)))


def _relay(state: DesiredState, name: str) -> str:
    node = state.node_named(name)
    return "" if node is None else settings_of(node).dialer_proxy


def _carrier(state: DesiredState, name: str) -> str:
    line_id = state.line_by_name.get(name)
    carrier = AUTO if line_id is None else state.lines[line_id].interface
    return "" if carrier == AUTO else carrier
