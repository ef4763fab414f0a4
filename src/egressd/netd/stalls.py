"""Ends connections to nodes that many clients share, and that the kernel has all but given up.

Over gRPC and HTTP/2 a node carries all its clients in one TCP connection, new ones too. After an
outage that nobody was told of, its next retransmission is as far away as the outage was long, up to
120 s (RFC 6298, 5.5; TCP_RTO_MAX in include/net/tcp.h): until then the node is dead, though it is
back. The engine makes another connection as soon as that one is gone. A connection of one client
alone is that client's to give up, but cannot be told from a shared one to the same port if the
server of that is a name, which the engine alone resolves.
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
from egressd.planner.options import shares_a_connection

log = structlog.get_logger()

PERIOD_S: Final = 5.0
PATIENCE_S: Final = 5.0
"""What is tried again sooner is left alone: nobody is to wait longer once a node is back."""


class Ends(msgspec.Struct, frozen=True, kw_only=True):
    """Where nodes' connections lead: server (an address or a name) and port."""

    shared: frozenset[tuple[str, int]] = frozenset()
    single: frozenset[tuple[str, int]] = frozenset()
    named: frozenset[int] = frozenset()
    """The ports of those of `shared` whose servers are names."""

    @classmethod
    def of(cls, instances: Iterable[Instance]) -> Ends:
        """Those of the outermost hops of instances' paths, which this machine connects to."""
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
        """Those of shared connections."""
        return frozenset(port for _, port in self.shared)

    def is_shared(self, address: IPv4Address, port: int) -> bool:
        """Whether a connection there is shared. That of a name may lead to any address."""
        end = str(address), port
        return end in self.shared or (port in self.named and end not in self.single)


class Stalls:
    """Looks for such connections for as long as there are nodes that make them."""

    def __init__(self, plan: Callable[[], Plan], uid: int) -> None:
        """The engine runs as `uid`."""
        self._plan = plan
        self._uid = uid
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to look."""
        self._task = asyncio.create_task(self._attend())

    async def close(self) -> None:
        """Stop."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def look(self) -> None:
        """End those that there are. Raises OSError."""
        ends = Ends.of(self._plan().instances.values())
        if not ends.shared:
            return
        ended = await asyncio.to_thread(
            sockets.destroy_stalled, ends.ports, ends.is_shared, self._uid, PATIENCE_S
        )
        if ended:
            log.info("ended connections to nodes that would wait on after an outage", count=ended)

    async def _attend(self) -> None:
        while True:
            try:
                await self.look()
            except OSError as error:
                log.warning("could not look for connections that stall", error=str(error))
            except Exception:
                log.exception("could not look for connections that stall")
            await asyncio.sleep(PERIOD_S)


def _is_address(server: str) -> bool:
    try:
        ip_address(server)
    except ValueError:
        return False
    return True
