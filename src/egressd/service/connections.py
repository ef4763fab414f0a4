"""The live connections of single clients, with the targets that they leave by."""

from __future__ import annotations

from ipaddress import IPv4Address
from socket import IPPROTO_ICMP, IPPROTO_TCP, IPPROTO_UDP
from typing import Annotated, Final, Literal, NamedTuple, TypeAlias

import msgspec
from msgspec import Meta

from egressd.model.connections import ConnectionState, TrackedConnection
from egressd.model.desired import DesiredState
from egressd.model.errors import Invalid, Missing
from egressd.model.faults import fault
from egressd.model.messages import ConnectionsClosed
from egressd.model.names import INTERFACE_PREFIX, parse_target
from egressd.planner.registry import (
    EGRESS_NUMBER_MAX,
    ENGINE_NUMBER_MAX,
    MARK_ASKED_DIRECTLY,
    MARK_DIRECT,
    MARK_EPOCH_MASK,
    MARK_KIND_MASK,
    MARK_UNMANAGED,
    asker_mark,
    asker_number,
    inbound_place,
    is_routed,
    node_mark,
    sniffer_mark,
)
from egressd.planner.targets import dial_path
from egressd.service.ledger import Ledger
from egressd.service.ports import Netd

ExitOf: TypeAlias = Literal["node", "group", "interface", "direct", "dns", "inspected", "unknown"]
_PROTOCOLS: Final = {IPPROTO_ICMP: "icmp", IPPROTO_TCP: "tcp", IPPROTO_UDP: "udp"}


class ClientConnection(msgspec.Struct, frozen=True, kw_only=True):
    """A live connection of a client."""

    id: Annotated[int, Meta(description="By which it is closed.")]
    protocol: Annotated[str, Meta(description="tcp, udp, icmp, or the number of another one.")]
    state: Annotated[
        ConnectionState,
        Meta(
            description="opening: the handshake is not complete; unanswered: nothing has come back "
            "yet; open; closing: one side has ended it."
        ),
    ]
    is_inbound: Annotated[bool, Meta(description="The far end has opened it (a port forward).")]
    client_port: int
    ip: Annotated[str, Meta(description="The far end, as the client sees it.")]
    port: Annotated[int, Meta(description="The far end's; 0 if the protocol has none.")]
    exit: Annotated[
        str, Meta(description="The node, interface or DIRECT that it leaves by; empty if unknown.")
    ]
    kind: Annotated[
        ExitOf,
        Meta(
            description="The kind of exit. dns: a question for a name. inspected: an instance of"
            " the engine looks for whitelisted names; the exit is that of all others."
        ),
    ]
    via: Annotated[
        str, Meta(description="The interface or DIRECT by which the node is reached, if it is one.")
    ]
    sent: Annotated[
        int | None,
        Meta(description="Bytes from the client; null if the kernel has not counted all of them."),
    ]
    received: Annotated[int | None, Meta(description="Bytes to the client, likewise.")]
    age_s: Annotated[int | None, Meta(description="Seconds since it was opened; null if unknown.")]


class ConnectionRows(NamedTuple):
    """The number of live connections of a client, and the first of them."""

    total: int
    rows: list[ClientConnection]


class Connections:
    """Lists and closes connections of clients. They are this box's own."""

    def __init__(self, ledger: Ledger, netd: Netd) -> None:
        self._ledger = ledger
        self._netd = netd

    async def list(self, client: str) -> ConnectionRows:
        """Return the connections of an address, those of the most bytes first. Raises Invalid,
        Failed.
        """
        found = await self._netd.connections(_address(client))
        state = self._ledger.state
        return ConnectionRows(found.total, [_shown(state, row) for row in found.first])

    async def close(self, client: str, connection: int) -> None:
        """Close a connection of an address. Raises Invalid, Missing, Failed."""
        ended = await self._netd.close_connections(_address(client), connection)
        if not ended.closed:
            raise Missing(fault("id", "no-such-connection", client=client, id=connection))

    async def close_all(self, client: str) -> ConnectionsClosed:
        """Close the connections of an address, as many as one call does. Raises Invalid, Failed."""
        return await self._netd.close_connections(_address(client), None)


def _address(client: str) -> str:
    try:
        return str(IPv4Address(client.strip()))
    except ValueError:
        raise Invalid(fault("client", "ipv4-address")) from None


def _shown(state: DesiredState, row: TrackedConnection) -> ClientConnection:
    left = _exit_of(state, row)
    return ClientConnection(
        id=row.id,
        protocol=_PROTOCOLS.get(row.protocol, str(row.protocol)),
        state=row.state,
        is_inbound=row.is_inbound,
        client_port=row.client_port,
        ip=row.far,
        port=row.far_port,
        exit=left.name,
        kind=left.kind,
        via=left.via,
        sent=row.sent,
        received=row.received,
        age_s=row.age_s,
    )


class _Exit(NamedTuple):
    name: str = ""
    kind: ExitOf = "unknown"
    via: str = ""


def _exit_of(state: DesiredState, row: TrackedConnection) -> _Exit:
    """Return the exit of a connection by its mark (`egressd.planner.registry`)."""
    if inbound_place(row.mark) is not None:
        return _Exit(row.wan, "interface")
    if is_routed(row.mark):
        mark = row.mark & ~MARK_EPOCH_MASK
        if mark & MARK_KIND_MASK != MARK_DIRECT:
            return _Exit(_interface(state, mark & EGRESS_NUMBER_MAX), "interface")
        return _Exit("DIRECT", "dns" if mark == MARK_ASKED_DIRECTLY else "direct")
    if row.mark == MARK_UNMANAGED:
        return _named(state, state.settings.unmanaged)
    number = asker_number(row.mark)
    if row.mark == asker_mark(number):
        return _Exit(_interface(state, number) if number else "DIRECT", "dns")
    number = row.mark & ENGINE_NUMBER_MAX
    if row.mark == node_mark(number):
        node = state.nodes.get(number)
        return _Exit() if node is None else _named(state, node.name)
    if row.mark == sniffer_mark(number & EGRESS_NUMBER_MAX):
        place = number & EGRESS_NUMBER_MAX
        return _Exit(_interface(state, place) if place else "DIRECT", "inspected")
    return _Exit()


def _interface(state: DesiredState, number: int) -> str:
    """Return the interface whose egress has that number; empty if there is none."""
    names = (name for name, known in state.numbers.items() if known == number)
    found = next((name for name in names if name.startswith(INTERFACE_PREFIX)), "")
    return found.removeprefix(INTERFACE_PREFIX)


def _named(state: DesiredState, target: str) -> _Exit:
    """Return the exit that a target as the API writes it stands for."""
    parsed = parse_target(target)
    match parsed.kind:
        case "direct":
            return _Exit("DIRECT", "direct")
        case "interface":
            return _Exit(parsed.name, "interface")
        case "group":
            return _Exit(parsed.name, "group")
        case "node":
            node = state.node_named(parsed.name)
            path = None if node is None else dial_path(state, node)
            return _Exit(parsed.name, "node", "" if path is None else path.interface or "DIRECT")
        case _:
            return _Exit(target)
