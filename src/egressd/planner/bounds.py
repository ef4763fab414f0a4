"""The share of a machine that one client may take: figures that the nftables table is loaded with.

A client is an address. It may be a household's router with fifty devices behind it, which holds
some hundreds of connections, or a program that opens as many as it can.
"""

from __future__ import annotations

from typing import Final

import msgspec

DESCRIPTORS_MAX: Final = 262_144
"""Open files that an engine worker gets if the machine has the memory."""
DESCRIPTORS_MIN: Final = 8192
_DESCRIPTOR_BYTES: Final = 12_288
"""Bytes of memory that are calculated for each open file of a worker. An idle connection holds two
of them and 20 KB in the worker (measured), and its two sockets in the kernel."""
_OF_A_CONNECTION: Final = 6
"""Open files of a connection whose bytes are spliced: two sockets and two pipes."""
_CLIENTS: Final = 4
"""Clients that use all of their share before a worker's descriptors are exhausted, at the least."""
_NETWORKS: Final = 2
"""Networks, of addresses without a rule of their own, that use all of their share before that."""
_CLIENTS_OF_A_NETWORK: Final = 4
"""Clients that use all of their share before their network may begin no further UDP session."""
NETWORK_BITS: Final = 24
"""The length of the prefix by which addresses without a rule of their own are counted."""

CONNECTIONS_MAX: Final = 2048
CONNECTIONS_MIN: Final = 64
_CALLERS: Final = 1024
"""Connections of one address to proxy services, at most."""

_WORKERS_SHARE: Final = 0.75
"""The part of the memory that all workers together may take."""

SESSION_S: Final = 300
"""Seconds of silence that a UDP session in the engine outlasts (`planner.documents`)."""

QUESTIONS_PER_S: Final = 24
QUESTIONS_AT_ONCE: Final = 160
"""DNS questions of one client by UDP. The engine gives each of them up to 4 s (`planner.naming`),
so that at most 160 plus four times 24, 256, are open. A browser's page asks for some sixty names,
three questions each."""
QUESTION_BYTES_PER_S: Final = 1
QUESTION_BYTES_AT_ONCE: Final = 4
"""The same by TCP, in KiB of packets: a packet may hold many questions, of some 33 bytes at
least."""
ASKING_CONNECTIONS: Final = 64
"""Connections of one client to the resolver, port 53."""
RESOLVERS_QUESTIONS_PER_S: Final = 256
RESOLVERS_QUESTIONS_AT_ONCE: Final = 1024
"""Questions of a resolver in a LAN that the configuration names: it asks on behalf of others."""
NETWORKS_QUESTIONS_PER_S: Final = 512
NETWORKS_QUESTIONS_AT_ONCE: Final = 2048
"""Questions of all addresses of a /24 together that have no rule of their own: a host may use
many."""


class Bounds(msgspec.Struct, frozen=True, kw_only=True):
    """The capacity of an engine worker, and the share of it that one client may have."""

    descriptors: int = DESCRIPTORS_MAX
    """Open files of a worker."""
    connections: int = CONNECTIONS_MAX
    """TCP connections of a client to the engine."""

    @property
    def flows(self) -> int:
        """UDP flows of a client to the engine, as counted by connection tracking. A program that
        speaks to many peers from one port has one for each, and one session in the engine.
        """
        return 2 * self.connections

    @property
    def sessions(self) -> int:
        """UDP sessions (source ports) of a client that may begin at once."""
        return self.connections // 2

    @property
    def sessions_per_s(self) -> int:
        """UDP sessions of a client that may begin per second after that: the engine keeps one for
        `SESSION_S`.
        """
        return max(self.connections // 128, 1)

    @property
    def sessions_kept(self) -> int:
        """UDP sessions that a client may hold at most after a while."""
        return self.sessions + SESSION_S * self.sessions_per_s

    @property
    def connections_of_network(self) -> int:
        """TCP connections to the engine of all addresses of a network that have no rule of their
        own: a host may use many."""
        return max(self.descriptors // _OF_A_CONNECTION // _NETWORKS, self.connections)

    @property
    def sessions_of_network(self) -> int:
        """UDP sessions of such addresses that may begin at once."""
        return _CLIENTS_OF_A_NETWORK * self.sessions

    @property
    def sessions_of_network_per_s(self) -> int:
        """UDP sessions of such addresses that may begin per second after that."""
        return _CLIENTS_OF_A_NETWORK * self.sessions_per_s

    @property
    def sessions_of_network_kept(self) -> int:
        """UDP sessions that such addresses may hold at most after a while."""
        return _CLIENTS_OF_A_NETWORK * self.sessions_kept

    @property
    def callers(self) -> int:
        """Connections of one address to proxy services."""
        return min(_CALLERS, self.connections)

    @property
    def outside(self) -> int:
        """Connections to proxy services from outside of LANs: half of their worker's capacity."""
        return 2 * self.connections

    def words(self) -> dict[str, str]:
        """Return the placeholders in the chains' text, each with its figure."""
        return {
            "$connections": str(self.connections),
            "$flows": str(self.flows),
            "$sessions_per_s": str(self.sessions_per_s),
            "$sessions": str(self.sessions),
            "$network_sessions_per_s": str(self.sessions_of_network_per_s),
            "$network_sessions": str(self.sessions_of_network),
        }


def descriptors(memory: int) -> int:
    """Return the open files of a worker that should make do with `memory` bytes."""
    return min(max(memory // _DESCRIPTOR_BYTES, DESCRIPTORS_MIN), DESCRIPTORS_MAX)


def workers_memory(memory: int, workers: int) -> int:
    """Return the bytes that each of `workers` should make do with, on a machine with `memory`."""
    return int(memory * _WORKERS_SHARE) // workers


def bounds_of(descriptors: int) -> Bounds:
    """Return the bounds for workers with that many open files."""
    share = descriptors // _OF_A_CONNECTION // _CLIENTS
    connections = min(max(share, CONNECTIONS_MIN), CONNECTIONS_MAX)
    return Bounds(descriptors=descriptors, connections=connections)
