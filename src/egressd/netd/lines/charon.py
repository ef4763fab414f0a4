"""charon, strongSwan's IKE daemon: one for all lines that have a secret.

A line's association (a CHILD_SA) covers one UDP port of ours towards its server, and is known by
that port (`ipsec.connection_name`). Lines from one address to one server with one secret
are a group: their associations hang on one IKE_SA, which bears the name of any of them.

charon is started with the first such line and outlives netd. When it dies, its associations would
last until they expire, with nobody to renew them: the lines are told that they are lost. One that
does not answer counts as dead, and is killed before the next is started.
"""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Callable, Container, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

import structlog

from egressd.netd.lines import diagnosis
from egressd.netd.lines.failure import Cause, Failure
from egressd.netd.lines.shared_secrets import SharedSecrets
from egressd.netd.lines.unit import LOG, Unit, prepare
from egressd.netd.lines.vici import CharonRefusal, Connection, Values
from egressd.planner.lines import ipsec
from egressd.planner.lines.dial import Dial
from egressd.planner.registry import LINE_PORTS

log = structlog.get_logger()

_START_S: Final = 10.0
_ESTABLISH_S: Final = 25.0
"""Longer than charon takes to give a silent server up."""
_END_MS: Final = 1000
"""How long charon may take to tell the server that an association ends."""

_IKE_PORT: Final = 500
_EVENTS: Final = ("log", "child-updown")


class _Association:
    """What is heard of one association."""

    def __init__(self, dial: Dial, group: int, on_loss: Callable[[], None]) -> None:
        self.dial = dial
        self.group = group
        self.on_loss = on_loss
        self.said: list[str] = []
        self.settled: asyncio.Future[Failure | None] = asyncio.get_running_loop().create_future()
        """None once it is up."""

    def settle(self, failure: Failure | None) -> None:
        if not self.settled.done():
            self.settled.set_result(failure)

    def lose(self, reason: str) -> None:
        if self.settled.done():
            self.on_loss()
        self.settle(Failure(Cause.FAILED, reason))


class Charon:
    """The daemon, started when it is needed."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._unit: Unit | None = None
        self._connection: Connection | None = None
        self._associations: dict[str, _Association] = {}
        self._groups: dict[str, int] = {}
        """Name of a connection, and so perhaps of an IKE_SA -> its group."""
        self._starting = asyncio.Lock()
        self._secrets = SharedSecrets()
        self._checks: set[asyncio.Task[None]] = set()

    async def open(self) -> None:
        """Find the daemon that an earlier netd started, if it lives and answers."""
        self._unit = await Unit.find(self._folder)
        if self._unit is None:
            return
        self._unit.on_end = self._ended
        try:
            await self._connect()
        except OSError as error:
            log.warning("running IKE daemon does not answer", error=str(error))
            await self._stop(polite=False)

    async def close(self) -> None:
        """End the daemon; every association ends with it."""
        await self._stop(polite=self._connection is not None)

    def release(self) -> None:
        """Leave the daemon running for a later netd."""
        if self._connection is not None:
            self._connection.close()
        if self._unit is not None:
            self._unit.release()

    @property
    def pid(self) -> int | None:
        """The daemon's process, if it runs."""
        return None if self._unit is None or self._unit.is_over else self._unit.pid

    # --- Associations. ----------------------------------------------------------------------

    async def establish(self, dial: Dial, on_loss: Callable[[], None]) -> int:
        """Have what `dial` sends carried by IPsec; the line's group. Raises Failure.

        `on_loss` is called when the association ends later without `end` being called.
        """
        name = ipsec.connection_name(dial.local_port)
        try:
            connection = await self._running()
            group = self._group_of(dial)
            association = self._associations[name] = _Association(dial, group, on_loss)
            self._groups[name] = group
            await self._forget(connection, name)
            async with self._secrets.lent(dial.server, dial.line.secret):
                failure = await self._negotiate(connection, name, association)
                if failure is not None:
                    await self._put_back_secret(connection, association)
        except (OSError, CharonRefusal) as error:
            self._associations.pop(name, None)
            raise Failure(Cause.FAILED, f"the IKE daemon failed: {error}") from error
        if failure is not None:
            await self.end(dial.local_port)
            raise failure
        return group

    def _group_of(self, dial: Dial) -> int:
        """The group of lines that `dial` shares an IKE_SA with; one of its own if there is none."""
        for association in self._associations.values():
            if _is_alike(association.dial, dial):
                return association.group
        taken = {association.group for association in self._associations.values()}
        return next(group for group in range(len(LINE_PORTS)) if group not in taken)

    async def _negotiate(
        self, connection: Connection, name: str, association: _Association
    ) -> Failure | None:
        dial = association.dial
        await connection.ask("load-shared", ipsec.shared_secret(dial.server, dial.line.secret))
        await connection.ask("load-conn", ipsec.connection(dial, association.group))
        # With a timeout of -1 charon answers at once; what comes of it is told by events.
        await connection.ask("initiate", {"child": name, "ike": name, "timeout": "-1"})
        try:
            async with asyncio.timeout(_ESTABLISH_S):
                return await association.settled
        except TimeoutError:
            return Failure(Cause.UNREACHABLE, f"IPsec with {dial.server} took too long")

    async def _put_back_secret(self, connection: Connection, failed: _Association) -> None:
        """Have what is up with that server renewed by the secret that it came up by."""
        server = failed.dial.server
        for other in self._associations.values():
            if other is not failed and other.dial.server == server:
                await connection.ask(
                    "load-shared", ipsec.shared_secret(server, other.dial.line.secret)
                )
                return

    async def resume(self, dial: Dial, group: int, on_loss: Callable[[], None]) -> bool:
        """Whether the association that an earlier netd made still stands; it is watched then.

        `group` is what `establish` gave.
        """
        name = ipsec.connection_name(dial.local_port)
        if self._connection is None:
            return False
        try:
            is_up = await self._is_up(self._connection, name)
        except (OSError, CharonRefusal):
            return False
        if is_up:
            association = self._associations[name] = _Association(dial, group, on_loss)
            self._groups[name] = group
            association.settle(None)
        return is_up

    async def keep_only(self, local_ports: Container[int]) -> None:
        """End the associations that an earlier netd left, but for those of these ports."""
        if self._connection is None:
            return
        kept = {ipsec.connection_name(port) for port in LINE_PORTS if port in local_ports}
        with suppress(OSError, CharonRefusal):
            known = await self._connection.ask("get-conns")
            for name in {conn.decode() for conn in known.get("conns", [])} - kept:
                await self._forget(self._connection, name)
            await self._sweep(self._connection)

    async def end(self, local_port: int) -> None:
        """End the association of that port, if there is one."""
        name = ipsec.connection_name(local_port)
        self._associations.pop(name, None)
        if self._connection is not None:
            with suppress(OSError, CharonRefusal):
                await self._forget(self._connection, name)
                await self._sweep(self._connection)

    async def _forget(self, connection: Connection, name: str) -> None:
        """End the association and forget the connection; others of the group go on."""
        for command, values in (
            ("terminate", {"child": name, "force": "yes", "timeout": str(_END_MS)}),
            ("unload-conn", {"name": name}),
        ):
            with suppress(CharonRefusal):  # there is none
                await connection.ask(command, values)

    async def _sweep(self, connection: Connection) -> None:
        """End each IKE_SA that none of our lines uses, nor tries to."""
        used = {(str(a.dial.local), str(a.dial.server)) for a in self._associations.values()}
        for found in await connection.collect("list-sas", "list-sa", {}):
            for sa in found.values():
                pair = sa.get("local-host", b"").decode(), sa.get("remote-host", b"").decode()
                if pair not in used and not sa.get("child-sas"):
                    ended = {"ike-id": sa["uniqueid"], "force": "yes", "timeout": str(_END_MS)}
                    with suppress(CharonRefusal):  # it ended by itself
                        await connection.ask("terminate", ended)

    async def _is_up(self, connection: Connection, name: str) -> bool:
        for found in await connection.collect("list-sas", "list-sa", {}):
            for child in _children(found):
                if (child.get("name"), child.get("state")) == (name.encode(), b"INSTALLED"):
                    return True
        return False

    # --- Events. ----------------------------------------------------------------------------

    def _hear(self, event: str, values: Values) -> None:
        if event == "log":
            group = self._groups.get(values["ikesa-name"].decode())
            for association in self._associations.values():
                if association.group == group and not association.settled.done():
                    association.said.append(values["msg"].decode(errors="replace"))
                    if failure := diagnosis.ike_verdict(association.dial, association.said):
                        association.settle(failure)
            return
        names = {child["name"].decode() for child in _children(values)}
        for name in names & self._associations.keys():
            if "up" in values:
                self._associations[name].settle(None)
            else:
                self._check(name)

    def _check(self, name: str) -> None:
        """An association ended; it may have been one that another took over from."""

        async def check() -> None:
            is_up = False
            if self._connection is not None:
                with suppress(OSError, CharonRefusal):
                    is_up = await self._is_up(self._connection, name)
            association = self._associations.get(name)
            # While an attempt goes on, what ends is what an earlier one left.
            if association is not None and association.settled.done() and not is_up:
                association.on_loss()

        task = asyncio.ensure_future(check())
        self._checks.add(task)
        task.add_done_callback(self._checks.discard)

    def _ended(self) -> None:
        log.error("IKE daemon ended", how=self._unit.how if self._unit else "")
        self._lose_all("the IKE daemon ended")

    def _lose_all(self, reason: str) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        lost, self._associations = self._associations, {}
        for association in lost.values():
            association.lose(reason)

    # --- The daemon. ------------------------------------------------------------------------

    async def _running(self) -> Connection:
        """A connection to the daemon, which is started if need be. Raises Failure, OSError."""
        async with self._starting:
            if self._connection is not None:
                return self._connection
            await self._stop(polite=False)
            _look_at_port()
            prepare(self._folder, {ipsec.FILE: ipsec.CONFIGURATION})
            self._unit = Unit.start(
                self._folder,
                [ipsec.DAEMON],
                covers={},
                environment={"STRONGSWAN_CONF": ipsec.FILE},
                note={},
            )
            self._unit.on_end = self._ended
            for _ in range(int(_START_S / 0.05)):
                with suppress(FileNotFoundError, ConnectionRefusedError):
                    return await self._connect()
                if self._unit.is_over:
                    break
                await asyncio.sleep(0.05)
            said = self._unit.read(LOG).strip().rpartition("\n")[2]
            await self._stop(polite=False)
            raise Failure(Cause.FAILED, f"the IKE daemon does not start: {said[:200]}")

    async def _connect(self) -> Connection:
        def closed() -> None:
            log.warning("IKE daemon closed the connection or does not answer")
            self._lose_all("the IKE daemon hung up or does not answer")

        path = self._folder / ipsec.SOCKET
        self._connection = await Connection.open(path, self._hear, closed, _EVENTS)
        return self._connection

    async def _stop(self, *, polite: bool) -> None:
        self._lose_all("the IKE daemon was ended")
        if self._unit is not None:
            self._unit.on_end = lambda: None
            await self._unit.end(polite=polite)
            self._unit = None


def _is_alike(one: Dial, other: Dial) -> bool:
    """Whether charon may take the two for users of one IKE_SA."""
    return (one.local, one.server, one.line.secret) == (
        other.local,
        other.server,
        other.line.secret,
    )


def _children(values: Values) -> Iterator[Values]:
    """The CHILD_SAs of the IKE_SAs that a message of charon lists."""
    for sa in values.values():
        if isinstance(sa, dict):
            yield from sa.get("child-sas", {}).values()


def _look_at_port() -> None:
    """Raise Failure when another program holds the port that IKE needs."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind(("0.0.0.0", _IKE_PORT))  # noqa: S104 (bound for a moment, to see)
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
            raise Failure(
                Cause.FAILED,
                f"another program has UDP port {_IKE_PORT}, which IPsec needs; Debian's own "
                "strongSwan is stopped by: systemctl disable --now strongswan strongswan-starter",
            ) from None
