"""End stalled connections to nodes that many clients share.

Over gRPC and HTTP/2 a node carries all its clients, new ones too, in one TCP connection. After an
outage that neither end was notified of, the next retransmission is as far away as the outage was
long, up to 120 s (RFC 6298, 5.5; TCP_RTO_MAX in include/net/tcp.h): until then the node is unusable
although it is back. The engine opens another connection as soon as that one is gone. The connection
of a single client is left to that client. But it cannot be distinguished from a shared connection
to the same port if the shared one's server is a name, which only the engine resolves.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from ipaddress import IPv4Address, ip_address
from typing import Final

import msgspec
import structlog

from egressd.model.instances import Dialer, Instance
from egressd.model.plan import Plan
from egressd.netd.kernel import sockets
from egressd.netd.system.periodic import PeriodicTask
from egressd.planner.options import shares_a_connection

log = structlog.get_logger()

PERIOD_S: Final = 5.0
PATIENCE_S: Final = 5.0
"""Seconds until the next retransmission: a connection that retransmits sooner is left alone, so
that no client waits longer than this once a node is back."""


class Ends(msgspec.Struct, frozen=True, kw_only=True):
    """The ends of nodes' connections: server (an address or a name) and port."""

    shared: frozenset[tuple[str, int]] = frozenset()
    single: frozenset[tuple[str, int]] = frozenset()
    named: frozenset[int] = frozenset()
    """The ports of the ends in `shared` whose servers are names."""

    @classmethod
    def of(cls, instances: Iterable[Instance]) -> Ends:
        """Return the ends of the outermost hops of instances' paths, which this machine connects
        to.
        """
        works = (instance.work for instance in instances)
        paths = (path for work in works if isinstance(work, Dialer) for path in work.paths)
        outermost = (path.hops[-1].outbound for path in paths)
        found = {
            ((made.server, made.server_port), shares_a_connection(made))
            for made in outermost
            if made.server_port
        }
        shared = frozenset(end for end, is_shared in found if is_shared)
        return cls(
            shared=shared,
            single=frozenset(end for end, _ in found) - shared,
            named=frozenset(port for server, port in shared if not _is_address(server)),
        )

    @property
    def ports(self) -> frozenset[int]:
        """The ports of shared connections."""
        return frozenset(port for _, port in self.shared)

    def is_shared(self, address: IPv4Address, port: int) -> bool:
        """True if a connection to this end may be shared. A name's connection may lead to any
        address.
        """
        end = str(address), port
        return end in self.shared or (port in self.named and end not in self.single)


class StalledConnections:
    """Ends stalled connections while the plan has nodes with shared connections."""

    def __init__(self, plan: Callable[[], Plan], uid: int) -> None:
        """The engine runs as `uid`."""
        self._plan = plan
        self._uid = uid
        self._task = PeriodicTask("check for stalled connections", self.check, PERIOD_S)

    def start(self) -> None:
        """Start looking."""
        self._task.start()

    async def close(self) -> None:
        """Stop."""
        await self._task.close()

    async def check(self) -> None:
        """End the connections that are stalled now. Raises OSError."""
        ends = Ends.of(self._plan().instances.values())
        if not ends.shared:
            return
        ended = await asyncio.to_thread(
            sockets.destroy_stalled, ends.ports, ends.is_shared, self._uid, PATIENCE_S
        )
        if ended:
            log.info("ended connections to nodes that stalled in an outage", count=ended)


def _is_address(server: str) -> bool:
    try:
        ip_address(server)
    except ValueError:
        return False
    return True
