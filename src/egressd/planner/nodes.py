"""What a node's own text says: how it is dialled, by which way, and what is wrong with it.

Each distinct input is read once and remembered.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Final

import msgspec

from egressd.formats.config_json import NodeSettings, read_config, read_settings
from egressd.model.errors import Invalid
from egressd.model.nouns import Node
from egressd.planner import outbounds
from egressd.planner.outbounds import engine
from egressd.planner.registry import MARK_DIRECT

_REMEMBERED: Final = 8192


@lru_cache(_REMEMBERED)
def settings_of(node: Node) -> NodeSettings:
    """The egress and DNS settings kept inside a node's ``config_json``; none where they have a
    fault.
    """
    try:
        return read_settings(node.config_json)
    except Invalid:
        return NodeSettings()


@lru_cache(_REMEMBERED)
def fault_of(node: Node) -> str:
    """What is wrong with the node's own configuration; empty when nothing is.

    A new one was checked. One that an earlier egressd took, or a backup brought, may not be as
    this one wants it: it blocks, and stands in nobody's way.
    """
    try:
        read_settings(node.config_json)
        outbound_of(node)
    except Invalid as invalid:
        return str(invalid)
    return ""


def lost_by_engine(node: Node) -> str:
    """Say what the engine in force cannot do of the node's configuration; the node works without.

    Empty when it can do all of it.
    """
    return _lost_by_engine(node) if node.protocol in engine.affected_protocols() else ""


@lru_cache(_REMEMBERED)
def _lost_by_engine(node: Node) -> str:
    try:
        fields = read_config(node.protocol, node.config_json).fields
    except Invalid:
        return ""
    return engine.LOST_EARLY_DATA if engine.loses_early_data(node.protocol, fields) else ""


@lru_cache(_REMEMBERED)
def outbound_of(node: Node) -> outbounds.Outbound:
    """The node as a sing-box outbound."""
    return outbounds.build(node)


class DialPath(msgspec.Struct, frozen=True):
    """A node and the relays it is reached through, outermost last.

    ``mark`` is the egress mark of the outermost hop's sockets, and ``interface`` the one that this
    hop is told to leave by, if it is.
    """

    hops: tuple[Node, ...]
    mark: int = MARK_DIRECT
    interface: str = ""


def asks_by_udp(paths: Iterable[DialPath]) -> bool:
    """Whether questions are asked over UDP through `paths`.

    Over a connection that clients share, an association with XUDP that begins while there is none
    hangs for good, and one asks for everybody: there it is TCP, which costs no handshake.
    """
    made = [outbound_of(hop).options for path in paths for hop in path.hops]
    hangs = any(
        options["type"] == "vless"
        and options["packet_encoding"] == "xudp"
        and options.get("transport", {}).get("type") in ("grpc", "http")
        for options in made
    )
    return carries_udp(paths) and not hangs


def carries_short_datagrams(paths: Iterable[DialPath]) -> bool:
    """Whether longer datagrams than `SHORT_DATAGRAM` get lost on one of `paths`: Hysteria 2 sends
    4,096 bytes at most, of which those of what it relays take some.
    """
    return any(hop.protocol == "hysteria2" for path in paths for hop in path.hops)


def carries_udp(paths: Iterable[DialPath]) -> bool:
    """Whether UDP gets through on each of `paths`."""
    return all(outbound_of(hop).udp for path in paths for hop in path.hops)
