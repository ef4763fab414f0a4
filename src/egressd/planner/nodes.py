"""A node's own text: its dial settings, its egress, and its faults.

Each distinct input is parsed once and cached.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from ipaddress import IPv4Address
from typing import Final

import msgspec

from egressd.formats.config_json import FIELD, NodeSettings, read_config, read_settings
from egressd.formats.hosts import dialled_address, leads_here
from egressd.model.errors import Invalid
from egressd.model.faults import fault
from egressd.model.nouns import Node
from egressd.model.outbounds import Outbound
from egressd.model.wording import NONE, Sentence
from egressd.planner import outbounds
from egressd.planner.outbounds import engine
from egressd.planner.registry import MARK_DIRECT
from egressd.planner.topology import is_client_space

_REMEMBERED: Final = 16_384  # results kept, those used last: of a list's nodes before and after
_NEAR: Final = re.compile(r'"(?:10|100|172|192)\.|:ffff:|\\u', re.IGNORECASE)
"""The pattern of a text that may contain an address from the ranges of LANs, in any notation."""


@lru_cache(_REMEMBERED)
def settings_of(node: Node) -> NodeSettings:
    """Return the egress and DNS settings kept inside a node's ``config_json``; the defaults if they
    have a fault.
    """
    try:
        return read_settings(node.config_json)
    except Invalid:
        return NodeSettings()


@lru_cache(_REMEMBERED)
def fault_of(node: Node) -> Sentence:
    """Return the fault of the node's own configuration; empty if there is none.

    New configurations were checked. A node from an earlier egressd or from a backup may not have
    the form required now: it blocks its own clients only.
    """
    try:
        relay = read_settings(node.config_json).dialer_proxy
        server = outbound_of(node).server
    except Invalid as invalid:
        return invalid.sentence
    if relay or not leads_here(server):
        return NONE
    return fault(f"{FIELD}.server", "server-is-device").sentence


def lost_by_engine(node: Node) -> Sentence:
    """Return the part of the node's configuration that the engine in force cannot carry out; the
    node works without.

    Empty if the engine supports all of it.
    """
    return _lost_by_engine(node) if node.protocol in engine.affected_protocols() else NONE


@lru_cache(_REMEMBERED)
def _lost_by_engine(node: Node) -> Sentence:
    try:
        fields = read_config(node.protocol, node.config_json).fields
    except Invalid:
        return NONE
    return engine.LOST_EARLY_DATA if engine.loses_early_data(node.protocol, fields) else NONE


def neighbour_of(node: Node) -> str:
    """Return the IPv4 address of the node's server, if the device dials it itself and it is in the
    ranges of LANs; else empty.
    """
    if not _NEAR.search(node.config_json) or fault_of(node) or settings_of(node).dialer_proxy:
        return ""
    address = dialled_address(outbound_of(node).server)
    return str(address) if isinstance(address, IPv4Address) and is_client_space(address) else ""


@lru_cache(_REMEMBERED)
def outbound_of(node: Node) -> Outbound:
    """Return the node as an outbound."""
    return outbounds.build(node)


class DialPath(msgspec.Struct, frozen=True):
    """A node and the relays it is reached through, outermost last.

    ``mark`` is the egress mark of the outermost hop's sockets, and ``interface`` the interface that
    this hop is configured to leave by, if any.
    """

    hops: tuple[Node, ...]
    mark: int = MARK_DIRECT
    interface: str = ""


def carries_udp(paths: Iterable[DialPath]) -> bool:
    """True if UDP gets through on each of `paths`."""
    return all(outbound_of(hop).udp for path in paths for hop in path.hops)
