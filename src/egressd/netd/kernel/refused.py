"""Clients and networks that reached a limit, from sets of the nftables table that packets fill.

`egressd.planner.chains.bounds` and `egressd.planner.proxy_service_rules` have the rules.
"""

from __future__ import annotations

import socket
from typing import Final, NamedTuple

from egressd.netd.kernel.netlink import KeptSocket
from egressd.netd.kernel.set_elements import INET, RawElement, dump
from egressd.planner.bounds import NETWORK_BITS

CONNECTIONS: Final = "connections"
SESSIONS: Final = "sessions"
NETWORK_CONNECTIONS: Final = "network_connections"
NETWORK_SESSIONS: Final = "network_sessions"
RESOLVER: Final = "resolver"
QUESTIONS: Final = "questions"
STRANGERS: Final = "strangers"
GUESSES: Final = "guesses"
CALLS: Final = "calls"
SERVICE: Final = "service"
OUTSIDE: Final = "outside"
API: Final = "api"

_BY_ADDRESS: Final = {
    "full_tcp": CONNECTIONS,
    "full_udp": SESSIONS,
    "full_dns": RESOLVER,
    "full_questions": QUESTIONS,
    "guessers": GUESSES,
    "full_callers": CALLS,
    "full_api": API,
    "full_api6": API,
}


class RefusedSource(NamedTuple):
    """A refusal: ``source`` is the IP address or network that was refused, ``port`` a proxy
    service's.
    """

    kind: str
    source: str = ""
    port: int = 0


def read(kept: KeptSocket) -> dict[RefusedSource, int]:
    """Return the refusals of the last seconds, with the packets of each.

    `kept`: of the protocol NETLINK_NETFILTER. Raises OSError.
    """
    found = {}
    with kept as kernel:
        for name, kind in _BY_ADDRESS.items():
            for each in dump(kernel, INET, name):
                found[RefusedSource(kind, _address(each.key))] = _packets(each)
        for each in dump(kernel, INET, "full_networks"):
            network = f"{_address(each.key)}/{NETWORK_BITS}"
            found[RefusedSource(NETWORK_SESSIONS, network)] = _packets(each)
        for each in dump(kernel, INET, "full_strangers"):
            # Each part of a key is padded to words of 32 bits.
            found[RefusedSource(STRANGERS, _address(each.key[:4]), _port(each.key[4:]))] = _packets(
                each
            )
        for each in dump(kernel, INET, "full_services"):
            found[RefusedSource(SERVICE, port=_port(each.key))] = _packets(each)
        for each in dump(kernel, INET, "full_outside"):
            found[RefusedSource(OUTSIDE)] = _packets(each)
    return found


def _address(key: bytes) -> str:
    return socket.inet_ntop(socket.AF_INET if len(key) == 4 else socket.AF_INET6, key)


def _port(key: bytes) -> int:
    return int.from_bytes(key[:2], "big")


def _packets(element: RawElement) -> int:
    return int.from_bytes(element.packets, "big")
