"""Keys and values of the classifier's maps."""

from __future__ import annotations

import struct
from ipaddress import IPv4Address, IPv4Network
from typing import Final

from egressd.planner.fast_networks import NetworkPlace
from egressd.planner.fast_path import APART_MAX, FastEgress, FastWay, Place

ADDRESS_BYTES: Final = 4
PLACE: Final = struct.Struct("=II6sxx")
"""A client's mark, the index of its LAN, and the hardware address that its frames must come from,
or zeros. The key is the client's address."""
_ANY: Final = bytes(6)
PREFIX: Final = struct.Struct("=I4s")
"""The key of a network: its length and its address (``struct bpf_lpm_trie_key``)."""
RULE: Final = struct.Struct("=Q")
"""The number of a CIDR rule: the key of its count. A network's value ends with it."""
NETWORK_BYTES: Final = PLACE.size + RULE.size
COUNT: Final = struct.Struct("=4Q")
"""Bytes and packets that a client, or those of a CIDR rule, have sent, and received."""
WAY: Final = struct.Struct("=II")
"""The mark of a client, and that of a flow. It is the key of an egress."""
EGRESS: Final = struct.Struct("=I4s4sI")
"""The part of an egress before its exceptions: interface, gateway, address; 1 if packets may be too
large for the side that they leave by, else 0."""
APART: Final = struct.Struct("=4s4s")
"""An exception: network and mask."""
LEASE_KEY: Final = bytes(4)
"""The only key of the map of the lease."""
DEADLINE: Final = struct.Struct("=Q")
"""The end of the lease, in nanoseconds of CLOCK_BOOTTIME."""
EGRESS_BYTES: Final = EGRESS.size + APART_MAX * APART.size
_NO_GATEWAY: Final = bytes(4)
_NOWHERE: Final = APART.pack(b"\0\0\0\1", bytes(4))
"""An exception that matches no address."""


def place_value(place: Place) -> bytes:
    """Return a client's place as a value of the map of clients."""
    mac = bytes.fromhex(place.mac.replace(":", "")) if place.mac else _ANY
    return PLACE.pack(place.mark, place.interface, mac)


def read_place(value: bytes) -> Place:
    """Return the place of a client from a value of the map of clients."""
    mark, interface, mac = PLACE.unpack(value)
    return Place(mark, interface, "" if mac == _ANY else mac.hex(":"))


def prefix_key(network: IPv4Network) -> bytes:
    """Return the key of a network."""
    return PREFIX.pack(network.prefixlen, network.network_address.packed)


def read_prefix(key: bytes) -> IPv4Network:
    """Return the network of a key of the map of networks."""
    length, address = PREFIX.unpack(key)
    return IPv4Network((address, length))


def network_value(network: NetworkPlace) -> bytes:
    """Return the place of a network's clients as a value of the map of networks."""
    return place_value(network.place) + RULE.pack(network.rule)


def read_network(value: bytes) -> NetworkPlace:
    """Return the place of a network's clients from a value of the map of networks."""
    (rule,) = RULE.unpack_from(value, PLACE.size)
    return NetworkPlace(read_place(value[: PLACE.size]), rule)


def egress_value(egress: FastEgress) -> bytes:
    """Return an egress as a value of the map of egresses."""
    apart = [APART.pack(n.network_address.packed, n.netmask.packed) for n in egress.apart]
    apart += [_NOWHERE] * (APART_MAX - len(apart))
    to, source = egress.gateway.packed if egress.gateway else _NO_GATEWAY, egress.address.packed
    fixed = EGRESS.pack(egress.interface, to, source, egress.has_other_mtu)
    return fixed + b"".join(apart)


def address_key(address: str) -> bytes:
    """Return the key of an address."""
    return IPv4Address(address).packed


def way_key(way: FastWay) -> bytes:
    """Return the key of a way."""
    return WAY.pack(*way)


def read_way(key: bytes) -> FastWay:
    """Return the way of a key of the map of egresses."""
    return FastWay(*WAY.unpack(key))
