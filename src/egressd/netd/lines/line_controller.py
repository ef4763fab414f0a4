"""One line: it is dialled, watched, ended, and after a while dialled again.

::

    waiting ──▶ dialing ──▶ online
       ▲           │           │
       └── cause ◀─┴───────────┘      cause: see `diagnosis.Cause`
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable
from contextlib import suppress
from ipaddress import IPv4Address
from pathlib import Path
from typing import Final

import msgspec
import structlog

from egressd.model.errors import Invalid
from egressd.model.facts import Interface
from egressd.model.messages import LineStatus
from egressd.model.names import AUTO
from egressd.model.nouns import Line
from egressd.model.times import utc_text
from egressd.model.wording import NONE, Sentence, as_sentence, say
from egressd.netd.kernel import sockets
from egressd.netd.lines import diagnosis
from egressd.netd.lines.backoff import Backoff
from egressd.netd.lines.charon import Charon, Secured
from egressd.netd.lines.failure import AccountInUse, CarrierChanged, Cause, Failure
from egressd.netd.lines.host_environment import HostEnvironment
from egressd.netd.lines.logins import Logins
from egressd.netd.lines.pulse import LOOK_S, EchoLog, SignsOfLife, packets, ping
from egressd.netd.lines.turns import Turns
from egressd.netd.system import daemon_group
from egressd.netd.system.daemon_group import DaemonGroup
from egressd.netd.system.port_range import PortRange
from egressd.planner.lines import pppd
from egressd.planner.lines.carrier import Carrier, carrier
from egressd.planner.lines.daemon import daemon
from egressd.planner.lines.dial import PPTP_PORT, Dial, check, dial_key
from egressd.planner.lines.ipsec import Manner

log = structlog.get_logger()

_DIAL_S: Final = 45.0
"""Seconds that a dial may take. The daemon gives up a server that does not answer earlier."""
_CONNECT_S: Final = 7.5
"""Seconds that a server's TCP may take to answer pptp(8), which would wait for two minutes. The
kernel has sent four SYN packets by then."""
_LOOK_S: Final = 0.25
"""Seconds between two checks of the logs of a line that is being dialled."""
_CHECK_S: Final = 30.0
"""Seconds between two full checks of a line that is online, if no event comes."""
_LAST_WORDS_S: Final = 0.3
"""Seconds that a daemon whose interface is gone has to log the reason."""
_SETTLE_S: Final = 0.5
"""Seconds that a new interface settles before a line is dialled by it."""
_TRY_AGAIN_S: Final = 1.0
_JITTER: Final = 0.2
"""Random share that is added to a delay, so that lines lost together do not keep dialling
together."""


class Note(msgspec.Struct, frozen=True, kw_only=True):
    """The record of a unit about its line, without secrets."""

    key: str
    """The `dial_key` of the line that the unit was started for."""
    server: str
    local: str
    carrier: str
    local_port: int
    ike_group: int = 0
    ike_manner: Manner = Manner()
    """The result of `Charon.establish`; unused for lines without a secret."""
    begun: float
    """Seconds of CLOCK_BOOTTIME, which continues over restarts of netd."""


class LineController:
    """Keeps one line up until `stop` or `release`.

    `on_change` is called when `status` or `resolvers` has changed.
    """

    def __init__(
        self,
        line: Line,
        folder: Path,
        *,
        environment: HostEnvironment,
        charon: Charon,
        ports: PortRange,
        logins: Logins,
        turns: Turns,
        on_change: Callable[[], None],
    ) -> None:
        self.line = line
        self.resolvers: tuple[str, ...] = ()
        """The DNS servers from the peer; empty if the line is down or the peer gives none."""
        self._folder = folder
        self._environment = environment
        self._charon = charon
        self._ports = ports
        self._logins = logins
        self._turns = turns
        self._on_change = on_change
        self._status = LineStatus(is_online=False, state="waiting")
        self._backoff = Backoff()
        self._news = asyncio.Event()
        self._due: float | None = 0.0
        """The event loop's time of the next dial; None: not before the line is changed."""
        self._turn = 0
        self._failed_by: Carrier | None = None
        self._server: IPv4Address | None = None
        self._unit: DaemonGroup | None = None
        self._local_port = 0
        self._online_since = 0.0
        self._old_look = environment.looks
        """`HostEnvironment.looks` when this line's daemons ended. That snapshot may still show
        their interface, which must not be taken for another program's.
        """
        self._is_secured = True
        self._encryption = NONE
        self._task: asyncio.Task[None] | None = None

    # --- For `Lines`. -----------------------------------------------------------------------

    def start(
        self, found: DaemonGroup | None, delay_s: float, *, is_takeover: bool = False
    ) -> None:
        """Start: with a unit that is already up, or by dialling after `delay_s`. In a takeover, the
        server may still hold a session of the other box.
        """
        if is_takeover:
            self._backoff.take_over()
        self._due = asyncio.get_running_loop().time() + delay_s
        self._task = asyncio.create_task(self._keep(found))

    async def stop(self) -> None:
        """Take the line down, and return once all its processes and files are gone."""
        await self._cancel()
        await self._take_down(polite=True)
        daemon_group.remove(self._folder)

    async def release(self) -> None:
        """Leave the line up for a later netd."""
        found, self._unit, self._local_port = self._unit, None, 0
        await self._cancel()
        if found is not None:
            found.release()

    def tell(self) -> None:
        """Note that something happened that may concern the line."""
        self._news.set()

    @property
    def status(self) -> LineStatus:
        """The line's state. It is online, too, while another program has made its interface."""
        status = self._status
        if (link := self.strange_link) is not None:
            status = msgspec.structs.replace(status, is_online=True, ip=_address(link))
        if self._status.is_online or self._due is None or status.state == "dialing":
            return status
        left = max(self._due - asyncio.get_running_loop().time(), 0.0)
        return msgspec.structs.replace(status, next_attempt=utc_text(time.time() + left))

    @property
    def strange_link(self) -> Interface | None:
        """The line's interface, if another program has made it and its addresses are allowed."""
        if self._unit is not None or self._environment.looks == self._old_look:
            return None
        if self._environment.objection(self.line.name):
            return None
        return self._environment.link(self.line.name)

    @property
    def server(self) -> IPv4Address | None:
        """The address that the line was dialled to last."""
        return self._server

    @property
    def pids(self) -> set[int]:
        """The known processes of the line."""
        return set() if self._unit is None or self._unit.is_over else {self._unit.pid}

    async def _cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})

    # --- The course of things. --------------------------------------------------------------

    async def _keep(self, found: DaemonGroup | None) -> None:
        while True:
            if found is None:
                await self._rest()
            failure = await self._attempt(found)
            found = None
            self._failed(failure)

    async def _rest(self) -> None:
        """Wait for the time of the next attempt, or for another carrier."""
        loop = asyncio.get_running_loop()
        while self._due is None or loop.time() < self._due:
            await self._hear(None if self._due is None else self._due - loop.time())
            if self._due is not None and self._status.state in _OF_THE_WAY:
                now = self._way()
                if now is not None and now != self._failed_by:
                    self._backoff.reset()
                    self._due = min(self._due, loop.time() + _SETTLE_S)
                    self._failed_by = now

    async def _attempt(self, found: DaemonGroup | None) -> Failure:
        """Dial and stay up, or stay up with `found`. Return the reason why that ended."""
        self._online_since = 0.0
        self._is_secured = True
        try:
            if found is None:
                await self._turns.take(self._backoff.streak)
                dial, self._unit = await self._dial()
            else:
                self._unit = found
                dial = await self._resume(found)
            await self._attend(dial, self._unit)
        except Failure as error:
            failure = self._astray(error)
        except Invalid as error:
            failure = Failure(Cause.INVALID, error.sentence)
        except OSError as error:
            failure = Failure(Cause.FAILED, say("line-not-started", reason=str(error)))
        except Exception as error:
            log.exception("unexpected error in a line", line=self.line.name)
            failure = Failure(Cause.FAILED, as_sentence(repr(error)))
        while True:
            try:
                await self._take_down(polite=failure.cause is not Cause.LOST)
            except Exception:
                # Daemons may still run: a second set beside them must not start.
                log.exception("cannot end the daemons of a line", line=self.line.name)
                await asyncio.sleep(_TRY_AGAIN_S)
            else:
                return failure

    def _failed(self, failure: Failure) -> None:
        loop = asyncio.get_running_loop()
        online_s = loop.time() - self._online_since if self._online_since else 0.0
        is_proven = self._logins.has_worked(dial_key(self.line))
        # A login that the other box of a pair had until now is as good as one that worked here.
        is_known = is_proven or self._backoff.is_after_takeover
        failure = diagnosis.reconsidered(failure, self._server, is_proven=is_known)
        delay = self._backoff.delay(
            failure.cause,
            online_s,
            is_proven=is_proven,
            is_in_use=isinstance(failure, AccountInUse),
            is_carrier_changed=isinstance(failure, CarrierChanged),
        )
        log.info("line down", line=self.line.name, why=str(failure), again_in=delay)
        jitter = 1 + random.random() * _JITTER  # noqa: S311 (chance, no secret)
        self._due = None if delay is None else loop.time() + delay * jitter
        self._turn += 1
        self._failed_by = self._way()
        status = LineStatus(is_online=False, state=failure.cause.value, reason=failure.reason)
        self._tell_of(status, is_news=True)  # at least the time of the next attempt is new

    async def _take_down(self, *, polite: bool) -> None:
        """End all that runs for the line. May be called again after an interruption."""
        self.resolvers = ()
        if self._unit is not None:
            await self._unit.end(polite=polite)
            self._unit = None
            self._old_look = self._environment.looks
        if self._local_port:
            if self.line.secret:
                await self._charon.end(self._local_port)
            self._ports.give_back(self._local_port)
            self._local_port = 0

    # --- Dialling. --------------------------------------------------------------------------

    async def _dial(self) -> tuple[Dial, DaemonGroup]:
        """Start the line's daemons. Raises Failure, Invalid, OSError."""
        line = self.line
        check(line)
        await self._environment.look()  # or the line's last interface would pass for the new one
        await self._environment.check_means(line)
        self._tell_of(
            LineStatus(
                is_online=False,
                state="dialing",
                reason=say("line-being-dialled", server=line.server),
            )
        )
        self._server = server = await self._environment.address(line.server, self._turn)
        way = self._carrier(server)
        if way is None:
            raise Failure(Cause.NO_CARRIER, _no_carrier(line, server))
        self._environment.check_way(server, way)
        if line.type == "l2tp":
            try:
                self._local_port = self._ports.take()
            except LookupError as error:
                raise Failure(Cause.FAILED, as_sentence(error.args[0])) from None
        dial = Dial(line=line, server=server, local=way.address, local_port=self._local_port)
        what = daemon(dial)
        secured = None
        if line.secret:
            secured = await self._charon.establish(dial, self._lost_security)
        self._encryption = encryption(line, secured)
        note = Note(
            key=dial_key(line),
            server=str(server),
            local=str(way.address),
            carrier=way.interface,
            local_port=self._local_port,
            ike_group=secured.group if secured else 0,
            ike_manner=secured.manner if secured else Manner(),
            begun=time.clock_gettime(time.CLOCK_BOOTTIME),
        )
        daemon_group.prepare(self._folder, what.files)
        started = DaemonGroup.start(
            self._folder, what.argv, covers=what.covers, note=msgspec.to_builtins(note)
        )
        return dial, started

    async def _resume(self, found: DaemonGroup) -> Dial:
        """Adopt the line of an earlier netd. Raises Failure if its IPsec association is gone."""
        note = note_of(found)
        self._server, self._local_port = IPv4Address(note.server), note.local_port
        if note.local_port:
            self._ports.claim(note.local_port)
        dial = Dial(
            line=self.line,
            server=self._server,
            local=IPv4Address(note.local),
            local_port=note.local_port,
        )
        secured = None
        if self.line.secret:
            secured = await self._charon.resume(
                dial, note.ike_group, note.ike_manner, self._lost_security
            )
            if secured is None:
                raise Failure(Cause.LOST, say("ipsec-ended"))
        self._encryption = encryption(self.line, secured)
        return dial

    def _lost_security(self) -> None:
        self._is_secured = False
        self.tell()

    def _way(self) -> Carrier | None:
        """Return the carrier by which the line would be dialled now, if the server is reachable by
        it.
        """
        server = self._server or IPv4Address(0)
        found = self._carrier(server)
        if found is not None:
            try:
                self._environment.check_way(server, found)
            except Failure:
                return None
        return found

    def _astray(self, failure: Failure) -> Failure:
        """Return the reason why no answer comes. Packets may have left by another interface while
        the line was dialled, for example after another line got the address of its carrier.
        """
        if failure.cause is Cause.UNREACHABLE and self._unit is not None:
            note = note_of(self._unit)
            way = Carrier(note.carrier, IPv4Address(note.local))
            try:
                self._environment.check_way(IPv4Address(note.server), way)
            except Failure as astray:
                return astray
        return failure

    def _carrier(self, server: IPv4Address) -> Carrier | None:
        return carrier(self.line, server, self._environment.facts)

    # --- Watching. --------------------------------------------------------------------------

    async def _attend(self, dial: Dial, running: DaemonGroup) -> None:
        """Follow the line from dialling on, until Failure is raised."""
        loop = asyncio.get_running_loop()
        running.on_end = self.tell
        note = note_of(running)
        began = loop.time() - (time.clock_gettime(time.CLOCK_BOOTTIME) - note.begun)
        by = Carrier(note.carrier, dial.local)
        pulse: SignsOfLife | None = None
        echoes = EchoLog(running.folder / pppd.LOG)
        while True:
            link = self._environment.link(self.line.name)
            if not self._is_secured:
                raise Failure(Cause.LOST, say("ipsec-ended"))
            if objection := self._environment.objection(self.line.name):
                raise Failure(Cause.REFUSED, objection)
            if running.is_over or (self._online_since and link is None):
                raise await self._why(dial, running)
            now = self._carrier(dial.server)
            if now is not None and now != by:
                raise CarrierChanged(_moved(dial, by, now))
            if link is not None:
                self._online(link, running)
                if pulse is None:
                    pulse = SignsOfLife(loop.time())
                end = loop.time() + _CHECK_S
                while (left := end - loop.time()) > 0 and not await self._hear(min(left, LOOK_S)):
                    self._feel(pulse, echoes, link)
                self._feel(pulse, echoes, link)
                continue
            if diagnosis.is_over(running.read(pppd.LOG), running.read(daemon_group.LOG)):
                raise await self._why(dial, running)
            if loop.time() - began > _CONNECT_S and _is_unanswered(dial):
                raise Failure(Cause.UNREACHABLE, say("no-pptp-server", server=str(dial.server)))
            if loop.time() - began > _DIAL_S:
                raise diagnosis.unfinished(
                    dial, running.read(pppd.LOG), running.read(daemon_group.LOG)
                )
            await self._hear(_LOOK_S)

    def _online(self, link: Interface, running: DaemonGroup) -> None:
        ip = _address(link)
        now = asyncio.get_running_loop().time()
        if not self._online_since:
            self._online_since = now
            self._logins.note(dial_key(self.line))
            self._charon.carries(self._local_port)
            log.info("line up", line=self.line.name, ip=ip, encryption=self._encryption)
        before, self.resolvers = self.resolvers, diagnosis.resolvers(running.read(pppd.RESOLVERS))
        status = LineStatus(is_online=True, ip=ip, state="online", encryption=self._encryption)
        self._tell_of(status, is_news=self.resolvers != before)

    def _feel(self, pulse: SignsOfLife, echoes: EchoLog, link: Interface) -> None:
        """Check for signs of life. Raises Failure if there were none for too long."""
        now = asyncio.get_running_loop().time()
        pulse.look(now, packets(self.line.name), echoes.news())
        self._charon.feel(self._local_port, pulse.silence_s(now))
        if pulse.is_silent(now):
            raise Failure(Cause.LOST, say("server-stopped-answering"))
        if pulse.is_doubtful(now):
            ping(self.line.name, link.peers[0])

    async def _why(self, dial: Dial, running: DaemonGroup) -> Failure:
        """Return the reason of the end from the daemons' logs, after a moment for their end."""
        if not running.is_over:
            await asyncio.sleep(_LAST_WORDS_S)
        failure = diagnosis.verdict(
            dial,
            was_online=bool(self._online_since),
            ppp_log=running.read(pppd.LOG),
            daemon_log=running.read(daemon_group.LOG),
        )
        if failure.cause is Cause.UNREACHABLE and dial.line.secret:
            return await self._charon.unheard(dial.local_port) or failure
        if failure.cause in (Cause.FAILED, Cause.LOST) and running.how:
            told = say("with-end", reason=failure.reason, how=running.how)
            return Failure(failure.cause, told)
        return failure

    async def _hear(self, timeout_s: float | None) -> bool:
        """Wait for news, but no longer than that. Return True if there are any."""
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._news.wait()
        is_news = self._news.is_set()
        self._news.clear()
        return is_news

    def _tell_of(self, status: LineStatus, is_news: bool = False) -> None:
        if status != self._status or is_news:
            self._status = status
            self._on_change()


_OF_THE_WAY: Final = (Cause.NO_CARRIER, Cause.UNREACHABLE, Cause.LOST)
"""Causes that another carrier may cure."""


def _address(link: Interface) -> str:
    return str(link.addresses[0].ip)


def encryption(line: Line, secured: Secured | None) -> Sentence:
    """Return the name of a line's encryption, with its weak parts."""
    if line.type == "pptp":
        return say("with-weak-parts", encryption=say("mppe"), parts=("MPPE",))
    return NONE if secured is None else secured.encryption


def _no_carrier(line: Line, server: IPv4Address) -> Sentence:
    if line.interface == AUTO:
        return say("no-route-to-server", server=str(server))
    return say("no-address-for-server", name=line.interface, server=str(server))


def _moved(dial: Dial, before: Carrier, now: Carrier) -> Sentence:
    """Return the reason why a line cannot stay on the carrier that it was dialled by."""
    if now.interface == before.interface:
        return say("carrier-readdressed", name=now.interface, address=str(now.address))
    return say("carrier-changed", server=str(dial.server), name=now.interface)


def _is_unanswered(dial: Dial) -> bool:
    """Return True for a PPTP line whose server has not even accepted the TCP connection."""
    return dial.line.type == "pptp" and sockets.is_unanswered(dial.local, dial.server, PPTP_PORT)


def note_of(found: DaemonGroup) -> Note:
    """Return a unit's note. Raises msgspec.ValidationError if another version started the unit."""
    return msgspec.convert(found.note, Note)
