"""charon, strongSwan's IKE daemon: one for all lines that have a secret.

A line's association (a CHILD_SA) covers one local UDP port towards its server, and has its name
from that port (`ipsec.association_name`). Lines from one address to one server with one secret are
a group: their associations belong to one IKE_SA (`ipsec.group_name`). What charon reports of an
IKE_SA it does not report of one line, so until one line of a group is up, they negotiate one after
the other.

charon is started with the first such line and outlives netd. Without it, its associations would
last until they expire and not be renewed, so the lines are lost when it ends. A charon that does
not answer counts as dead, and is killed before the next one is started.
"""

from __future__ import annotations

import asyncio
import errno
import math
import socket
from collections.abc import Callable, Container, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple
from weakref import WeakValueDictionary

import msgspec
import structlog

from egressd.model.wording import NONE, Sentence, as_sentence, say
from egressd.netd.lines import diagnosis
from egressd.netd.lines.diagnosis import IkeTalk
from egressd.netd.lines.failure import Cause, Declined, Failure, Unproved
from egressd.netd.lines.manners import Manners, way_of
from egressd.netd.lines.shared_secrets import SharedSecrets
from egressd.netd.lines.vici import CharonRefusal, Connection, Values
from egressd.netd.system.daemon_group import LOG, DaemonGroup, prepare
from egressd.planner.lines import ipsec, proposals
from egressd.planner.lines.dial import Dial
from egressd.planner.lines.ipsec import Manner
from egressd.planner.registry import LINE_PORTS

log = structlog.get_logger()

_START_S: Final = 10.0
_ESTABLISH_S: Final = 25.0
"""Seconds for all offers to a server. charon gives up a silent server earlier."""
_END_MS: Final = 1000
"""Milliseconds that charon may take to notify the server of the end of an association."""

_SILENT_S: Final = 4.0
"""Seconds of silence of all other lines on a lost line's IKE_SA after which the server counts as
restarted: its lines fall silent within the same second."""

_ORDINARY: Final = Manner()

_IKE_PORT: Final = 500
_EVENTS: Final = ("log", "child-updown")


class Secured(NamedTuple):
    """The association of a line."""

    group: int
    manner: Manner
    encryption: Sentence
    """The algorithms in use, as text: see `proposals.in_use`."""


class _Found(NamedTuple):
    """An association as charon lists it."""

    sa: Values
    """The IKE_SA that it belongs to."""
    child: Values


class _Turn:
    """The order of a group's lines, none of which is up yet."""

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.failure: Failure | None = None
        """The last one's."""
        self.failed_at = -math.inf
        """The loop's time."""


class _Association:
    """An association, and the messages about it during the negotiation."""

    def __init__(
        self, dial: Dial, group: int, on_loss: Callable[[], None], manner: Manner = _ORDINARY
    ) -> None:
        self.dial = dial
        self.group = group
        self.on_loss = on_loss
        self.begin(manner)

    def begin(self, manner: Manner) -> None:
        """Start an attempt in that manner."""
        self.manner = manner
        self.has_carried = False
        """True once the line was online by this association."""
        self.silence_s = 0.0
        """Seconds for which an answer by it has been due and has not come."""
        self.is_up = False
        """True once it is established, until its loss is known."""
        self._talk = IkeTalk(self.dial)
        self.settled: asyncio.Future[Failure | None] = asyncio.get_running_loop().create_future()
        """The failure of the attempt; None once the association is up."""

    def hear(self, message: str) -> None:
        """Take a log message of charon about its IKE_SA."""
        if not self.settled.done() and (failure := self._talk.hear(message)):
            self.settle(failure)

    def settle(self, failure: Failure | None) -> None:
        if not self.settled.done():  # as it is, too, if the attempt was cancelled
            self.is_up = failure is None
            self.settled.set_result(failure)

    def note_loss(self) -> None:
        """Report its end, once. An attempt reports its failure instead."""
        if self.is_up:
            self.is_up = False
            self.on_loss()

    def lose(self, reason: Sentence) -> None:
        self.note_loss()
        self.settle(Failure(Cause.FAILED, reason))


class Charon:
    """The daemon, which is started on demand."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._unit: DaemonGroup | None = None
        self._connection: Connection | None = None
        self._associations: dict[str, _Association] = {}
        self._manners = Manners()
        self._starting = asyncio.Lock()
        self._turns: WeakValueDictionary[int, _Turn] = WeakValueDictionary()
        """By group; of those that a line takes or waits for."""
        self._secrets = SharedSecrets()
        self._checks: set[asyncio.Task[None]] = set()

    async def open(self) -> None:
        """Find the daemon that an earlier netd started, if it lives and answers."""
        self._unit = await DaemonGroup.find(self._folder)
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

    async def establish(self, dial: Dial, on_loss: Callable[[], None]) -> Secured:
        """Establish an association for the packets of `dial`. Raises Failure.

        `on_loss` is called when the association ends later without `end` being called.
        """
        name = ipsec.association_name(dial.local_port)
        encryption = NONE
        try:
            connection = await self._running()
            association = _Association(dial, self._group_of(dial), on_loss)
            self._associations[name] = association
            await _terminate(connection, {"child": name})
            await self._leave_dead(connection, association)
            failure = await self._in_turn(connection, association)
            if failure is None:
                encryption = await self._encryption(connection, association)
        except (OSError, CharonRefusal) as error:
            self._associations.pop(name, None)
            raise Failure(Cause.FAILED, say("ike-fails", reason=_reason(error))) from error
        if failure is not None:
            await self.end(dial.local_port)
            raise failure
        return Secured(association.group, association.manner, encryption)

    def _group_of(self, dial: Dial) -> int:
        """Return the group of lines that `dial` shares an IKE_SA with, or else an unused one."""
        for association in self._associations.values():
            if way_of(association.dial) == way_of(dial):
                return association.group
        taken = {association.group for association in self._associations.values()}
        return next(group for group in range(len(LINE_PORTS)) if group not in taken)

    def _members(self, group: int) -> list[_Association]:
        return [each for each in self._associations.values() if each.group == group]

    def _is_first(self, association: _Association) -> bool:
        """Return True if no other line of its group is up."""
        members = self._members(association.group)
        return not any(each.is_up for each in members if each is not association)

    async def _in_turn(self, connection: Connection, association: _Association) -> Failure | None:
        """Negotiate with the server, alone as long as no other line of the group is up. A failure
        of another line that came while this one waited is this one's, too.
        """
        came = asyncio.get_running_loop().time()
        turn = self._turns.setdefault(association.group, _Turn())
        async with turn.lock:
            if self._is_first(association):
                if turn.failure is None or turn.failed_at < came:
                    turn.failure = await self._with_secret(connection, association)
                    turn.failed_at = asyncio.get_running_loop().time()
                return turn.failure
        return await self._with_secret(connection, association)

    async def _with_secret(
        self, connection: Connection, association: _Association
    ) -> Failure | None:
        dial = association.dial
        async with self._secrets.lent(dial.server, dial.line.secret):
            failure = await self._negotiate(connection, association)
            if failure is not None:
                await self._put_back_secret(connection, association)
            return failure

    async def _leave_dead(self, connection: Connection, association: _Association) -> None:
        """End the IKE_SA of the group if its server has restarted: requests by it would have no
        answer, for 10.7 s. The other lines are redialled, too.
        """
        others = [each for each in self._members(association.group) if each is not association]
        if others and all(other.silence_s >= _SILENT_S for other in others):
            for other in others:
                other.note_loss()
            await _terminate(connection, _of_group(association.group))

    async def _negotiate(self, connection: Connection, association: _Association) -> Failure | None:
        """Try one manner after the other, as long as the server answers at once that it accepts
        no proposal.
        """
        dial, failure = association.dial, None
        await connection.ask("load-shared", ipsec.shared_secret(dial.server, dial.line.secret))
        tried: set[Manner] = set()
        try:
            async with asyncio.timeout(_ESTABLISH_S):
                while (manner := self._manners.of(dial)) not in tried:
                    tried.add(manner)
                    failure = await self._ask(connection, association, manner)
                    if failure is None and self._manners.is_guess(dial):
                        failure = await self._ask_for_first(connection, association)
                    if failure is None:
                        self._manners.established(dial, association.manner)
                        return None
                    self._learn(association, failure)
                    if not (isinstance(failure, Declined) and failure.is_said):
                        break
        except TimeoutError:
            return Failure(Cause.UNREACHABLE, say("ipsec-too-slow", server=str(dial.server)))
        return failure

    async def _ask_for_first(
        self, connection: Connection, association: _Association
    ) -> Failure | None:
        """Send the first offers to a server that is up now and may have been down when it received
        them, or else the offers it has accepted. No other line of the group is up: it would lose
        its IKE_SA.
        """
        taken, failure = association.manner, None
        for manner in (msgspec.structs.replace(taken, ike=0, esp=0), taken):
            association.begin(manner)  # or the next step would count as its loss
            await _terminate(connection, _of_group(association.group))
            failure = await self._ask(connection, association, manner)
            if failure is None:
                self._manners.confirmed(association.dial)
                break
        return failure

    async def _ask(
        self, connection: Connection, association: _Association, manner: Manner
    ) -> Failure | None:
        association.begin(manner)
        await self._tell(connection, association.group, manner)
        asked = {
            "child": ipsec.association_name(association.dial.local_port),
            "ike": ipsec.group_name(association.group),
            # charon answers at once; events report the outcome.
            "timeout": "-1",
        }
        await connection.ask("initiate", asked)
        return await association.settled

    def _learn(self, association: _Association, failure: Failure) -> None:
        """Change the manner of the next attempt, if that may help."""
        dial, manner = association.dial, association.manner
        if isinstance(failure, Declined) and failure.is_said:
            self._manners.refused(dial, manner, failure.stage)
        elif isinstance(failure, Declined):
            self._manners.unanswered(dial, manner, failure.stage)
        elif isinstance(failure, Unproved) and manner.is_in_udp:
            self._manners.unheard(dial, manner)

    async def _tell(self, connection: Connection, group: int, manner: Manner) -> None:
        """Load the connection of a group with its present lines."""
        dials = [each.dial for each in self._members(group)]
        if dials:
            await connection.ask("load-conn", ipsec.connection(dials, group, manner))
        else:
            with suppress(CharonRefusal):  # there is none
                await connection.ask("unload-conn", {"name": ipsec.group_name(group)})

    async def _put_back_secret(self, connection: Connection, failed: _Association) -> None:
        """Restore the secret by which the other associations with that server were made, so that
        they are renewed by it.
        """
        server = failed.dial.server
        for other in self._associations.values():
            if other is not failed and other.dial.server == server:
                await connection.ask(
                    "load-shared", ipsec.shared_secret(server, other.dial.line.secret)
                )
                return

    async def resume(
        self, dial: Dial, group: int, manner: Manner, on_loss: Callable[[], None]
    ) -> Secured | None:
        """Adopt the association that an earlier netd made, if it still exists.

        `group` and `manner` are results of `establish`.
        """
        name = ipsec.association_name(dial.local_port)
        if self._connection is None:
            return None
        # From now on, for lines that are dialled meanwhile: they must not take its group's number
        # for another one, nor another one for its group.
        association = self._associations[name] = _Association(dial, group, on_loss, manner)
        self._manners.established(dial, manner)
        encryption = None
        with suppress(OSError, CharonRefusal):
            if await self._find(self._connection, name):
                encryption = await self._encryption(self._connection, association)
        if encryption is None:
            self._associations.pop(name, None)
            return None
        association.settle(None)
        return Secured(group, manner, encryption)

    def carries(self, local_port: int) -> None:
        """Note that the line of that port is online by its association."""
        association = self._associations.get(ipsec.association_name(local_port))
        if association is not None and not association.has_carried:
            association.has_carried = True
            self._manners.carried(association.dial, association.manner)

    def feel(self, local_port: int, silence_s: float) -> None:
        """Note for how many seconds an answer has been due on the line of that port."""
        association = self._associations.get(ipsec.association_name(local_port))
        if association is not None:
            association.silence_s = silence_s

    async def unheard(self, local_port: int) -> Failure | None:
        """Return the reason why the L2TP server does not answer the line of that port, if no packet
        came by its association, else None. The next attempt may use another manner.
        """
        name = ipsec.association_name(local_port)
        association = self._associations.get(name)
        if association is None or self._connection is None:
            return None
        try:
            found = await self._find(self._connection, name, association.group)
        except (OSError, CharonRefusal):
            return None
        if found is None or int(found.child.get("packets-in", b"0")):
            return None
        if not any(each.has_carried for each in self._members(association.group)):
            self._manners.unheard(association.dial, association.manner)
        in_udp = found.child.get("encap") == b"yes"
        was_tried = association.manner.is_in_udp
        return diagnosis.unheard(association.dial, in_udp=in_udp, was_tried=was_tried)

    async def keep_only(self, local_ports: Container[int], groups: Container[int]) -> None:
        """End all associations of an earlier netd except those of these ports and groups."""
        if self._connection is None:
            return
        ports = (port for port in LINE_PORTS if port in local_ports)
        kept = {ipsec.association_name(port) for port in ports}
        kept_groups = {ipsec.group_name(g) for g in range(len(LINE_PORTS)) if g in groups}
        with suppress(OSError, CharonRefusal):
            for found in await self._list(self._connection):
                if (name := found.child["name"].decode()) not in kept:
                    await _terminate(self._connection, {"child": name})
            known = await self._connection.ask("get-conns")
            for name in {conn.decode() for conn in known.get("conns", [])} - kept_groups:
                await self._connection.ask("unload-conn", {"name": name})
            await self._sweep(self._connection)

    async def end(self, local_port: int) -> None:
        """End the association of that port, if there is one; others of its group continue."""
        name = ipsec.association_name(local_port)
        ended = self._associations.pop(name, None)
        if self._connection is None:
            return
        with suppress(OSError, CharonRefusal):
            await _terminate(self._connection, {"child": name})
            if ended is not None:
                await self._tell(self._connection, ended.group, self._manner_of(ended))
                await self._sweep(self._connection, ended.group)

    def _manner_of(self, ended: _Association) -> Manner:
        """Return the manner of the lines that are up of the group of a line that was ended, or else
        the one that is tried at present.
        """
        up = (each.manner for each in self._members(ended.group) if each.is_up)
        return next(up, self._manners.of(ended.dial))

    async def _sweep(self, connection: Connection, group: int | None = None) -> None:
        """End each IKE_SA, of a group or of all, that no line uses or negotiates."""
        used = {(str(a.dial.local), str(a.dial.server)) for a in self._associations.values()}
        for found in await connection.collect("list-sas", "list-sa", _of_group(group)):
            for sa in found.values():
                pair = sa.get("local-host", b"").decode(), sa.get("remote-host", b"").decode()
                if pair not in used and not sa.get("child-sas"):
                    await _terminate(connection, {"ike-id": sa["uniqueid"]})

    async def _list(self, connection: Connection, group: int | None = None) -> list[_Found]:
        """Return the associations of a group, or all."""
        listed = await connection.collect("list-sas", "list-sa", _of_group(group))
        return [
            _Found(sa, child)
            for values in listed
            for sa in values.values()
            for child in sa.get("child-sas", {}).values()
        ]

    async def _find(
        self, connection: Connection, name: str, group: int | None = None
    ) -> _Found | None:
        """Return the association of that name, if it is up. An earlier netd's may have no group."""
        wanted = name.encode(), b"INSTALLED"
        for found in await self._list(connection, group):
            if (found.child.get("name"), found.child.get("state")) == wanted:
                return found
        return None

    async def _encryption(self, connection: Connection, association: _Association) -> Sentence:
        name = ipsec.association_name(association.dial.local_port)
        found = await self._find(connection, name, association.group)
        if found is None:
            return NONE
        return proposals.in_use(found.sa, found.child, is_forced=association.manner.is_in_udp)

    # --- Events. ----------------------------------------------------------------------------

    def _hear(self, event: str, values: Values) -> None:
        if event == "log":
            name = values["ikesa-name"].decode()
            for association in self._associations.values():
                if ipsec.group_name(association.group) == name:
                    association.hear(values["msg"].decode(errors="replace"))
            return
        names = {child["name"].decode() for child in _children(values)}
        for name in names & self._associations.keys():
            if "up" in values:
                self._associations[name].settle(None)
            else:
                self._check(name)

    def _check(self, name: str) -> None:
        """Handle the end of an association, which a renewed one may have replaced."""

        async def check() -> None:
            is_up = False
            if self._connection is not None:
                with suppress(OSError, CharonRefusal):
                    is_up = await self._find(self._connection, name) is not None
            association = self._associations.get(name)
            # During an attempt, an association that ends is left from an earlier one.
            if association is not None and not is_up:
                association.note_loss()

        task = asyncio.ensure_future(check())
        self._checks.add(task)
        task.add_done_callback(self._checks.discard)

    def _ended(self) -> None:
        log.error("IKE daemon ended", how=self._unit.how if self._unit else "")
        self._lose_all(say("ike-ended"))

    def _lose_all(self, reason: Sentence) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        lost, self._associations = self._associations, {}
        for association in lost.values():
            association.lose(reason)

    # --- The daemon. ------------------------------------------------------------------------

    async def _running(self) -> Connection:
        """Return a connection to the daemon; start it if needed. Raises Failure or OSError."""
        async with self._starting:
            if self._connection is not None:
                return self._connection
            await self._stop(polite=False)
            _look_at_port()
            prepare(self._folder, {ipsec.FILE: ipsec.CONFIGURATION})
            self._unit = DaemonGroup.start(
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
            raise Failure(Cause.FAILED, say("ike-does-not-start", said=said[:200]))

    async def _connect(self) -> Connection:
        def closed() -> None:
            log.warning("IKE daemon closed the connection or does not answer")
            self._lose_all(say("ike-hung-up"))

        path = self._folder / ipsec.SOCKET
        self._connection = await Connection.open(path, self._hear, closed, _EVENTS)
        return self._connection

    async def _stop(self, *, polite: bool) -> None:
        self._lose_all(say("ike-was-ended"))
        if self._unit is not None:
            self._unit.on_end = lambda: None
            await self._unit.end(polite=polite)
            self._unit = None


async def _terminate(connection: Connection, which: Values) -> None:
    """End the associations that match, if there are any."""
    with suppress(CharonRefusal):  # there is none
        values = {**which, "force": "yes", "timeout": str(_END_MS)}
        await connection.ask("terminate", values)


def _of_group(group: int | None) -> dict[str, str]:
    """Return charon's filter for the associations of a group, or for all."""
    return {} if group is None else {"ike": ipsec.group_name(group)}


def _children(values: Values) -> Iterator[Values]:
    """Yield the CHILD_SAs of the IKE_SAs in a message of charon."""
    for sa in values.values():
        if isinstance(sa, dict):
            yield from sa.get("child-sas", {}).values()


def _reason(error: OSError | CharonRefusal) -> Sentence:
    """Return the sentence of an error of `vici`, or the text of another one."""
    said = error.args[0] if error.args else None
    return said if isinstance(said, Sentence) else as_sentence(str(error))


def _look_at_port() -> None:
    """Raise Failure if another program holds the port that IKE needs."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind(("0.0.0.0", _IKE_PORT))  # noqa: S104 (bound for a moment, to see)
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
            raise Failure(Cause.FAILED, say("ike-port-in-use", port=_IKE_PORT)) from None
