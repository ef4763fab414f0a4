"""All VPN lines of the device: the interface to the reconciler."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from ipaddress import IPv4Address
from pathlib import Path
from typing import Final

import msgspec
import structlog

from egressd.model.messages import LineStatus
from egressd.model.nouns import Line
from egressd.model.wording import say
from egressd.netd.kernel.debounce import Debouncer
from egressd.netd.lines import diagnosis
from egressd.netd.lines.charon import Charon
from egressd.netd.lines.host_environment import HostEnvironment
from egressd.netd.lines.line_controller import LineController, note_of
from egressd.netd.lines.logins import Logins
from egressd.netd.lines.turns import Turns
from egressd.netd.system import daemon_group, orphans
from egressd.netd.system.daemon_group import DaemonGroup
from egressd.netd.system.port_range import PortRange
from egressd.planner.lines import pppd
from egressd.planner.lines.address import Taken
from egressd.planner.lines.dial import dial_key
from egressd.planner.registry import CLEAR_LINE_PORTS, LINE_PORTS

log = structlog.get_logger()

_APART_S: Final = 0.25
"""Average seconds between the first dials of several lines."""
_SPREAD_MAX_S: Final = 10.0
_OF_OTHER_BOX: Final = LineStatus(
    is_online=False, state="standby", reason=say("dialled-by-active-box")
)
_TO_DIAL: Final = LineStatus(is_online=False, state="waiting")
"""The state of a line that is about to be dialled, or may be once the box's role is known."""


class DialledLines:
    """Keeps the wanted lines up, while it may dial.

    `run_dir` is a folder of their own (its path must be short: a Unix socket's path holds 107
    bytes), `logins` the file of the logins that have worked. `on_change` is called with the name of
    a line whose status or resolvers have changed. Daemons in the folder `others` are not its own
    and are left alone; all others that it does not know are ended. `may_dial` is None on a box of a
    pair: until `allow` is called, lines that an earlier netd left up stay up, and no other is
    dialled.
    """

    def __init__(
        self,
        run_dir: Path,
        logins: Path,
        on_change: Callable[[str], None],
        *,
        others: Path | None = None,
        may_dial: bool | None = True,
    ) -> None:
        self._others = others
        self._folder = run_dir / "units"
        self._on_change = on_change
        self._charon = Charon(run_dir / "charon")
        self._secret_ports = _ports(LINE_PORTS, "secret-lines-full")
        self._clear_ports = _ports(CLEAR_LINE_PORTS, "clear-lines-full")
        self._logins = Logins(logins)
        self._environment = HostEnvironment(self._tell_all)
        self._controllers: dict[str, LineController] = {}
        self._found: dict[str, DaemonGroup] = {}
        self._wanted: dict[str, Line] = {}
        self._left_out: set[LineController] = set()
        """Keepers left out by a `want()` that `apply()` has not processed yet. They are stopped
        even if a later `want()` lists the line again: disabling and enabling a line must redial it.
        """
        self._leaving: dict[str, Line] = {}
        self._strange: set[str] = set()
        """Lines whose interfaces another program has made."""
        self._turns = Turns(time.monotonic)
        self._turn = asyncio.Lock()
        self._may_dial = may_dial
        self._idle = _TO_DIAL if may_dial is None else None
        """The state of a wanted line that is not kept up; None on a box that is alone."""
        self._is_takeover = False
        """True if the next lines that are dialled were the other box's until now."""
        self._is_open = False
        """True once the units of an earlier netd have been adopted or ended."""

    # --- Start and end. ---------------------------------------------------------------------

    async def find(self) -> None:
        """Find the lines that an earlier netd left up. `open` must follow."""
        for folder in (self._folder.parent, self._folder):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if ended := await asyncio.to_thread(orphans.end, self._is_stray):
            log.warning("ended line daemons unknown to this run directory", pids=ended)
        for folder in self._folder.iterdir():
            if (found := await DaemonGroup.find(folder)) is not None:
                self._found[folder.name] = found
            else:
                daemon_group.remove(folder)
        if self._found:
            log.info("adopted running lines", lines=sorted(self._found))

    async def open(self) -> None:
        """Prepare to dial. `apply` must follow."""
        self._logins.load()
        self._follower = Debouncer(lambda: self.apply(self._wanted))
        await self._environment.open()
        await self._charon.open()

    async def close(self) -> None:
        """Take every line down, and end their daemons."""
        self._wanted = {}
        async with self._turn:
            await self._end_found({})
            await self._drop(list(self._controllers))
            await self._charon.close()
        await self._follower.close()
        await self._environment.close()

    async def release(self) -> None:
        """Leave every line up, for a later netd."""
        await self._follower.close()
        async with self._turn:
            for controller in self._controllers.values():
                await controller.release()
            for found in self._found.values():
                found.release()
            self._charon.release()
        await self._environment.close()

    # --- What is wanted, and what is. -------------------------------------------------------

    def want(self, wanted: Mapping[str, Line]) -> None:
        """Schedule `apply`, and return. Lines that `wanted` leaves out end, even if a later set has
        them again before they have ended.
        """
        self._note(wanted)
        self._left_out.update(self._unlike(wanted).values())
        self._follower.notify()

    def allow(self, *, may_dial: bool) -> None:
        """Schedule to dial the wanted lines, at once, or to take all lines down since the other box
        of a pair dials them; and return.
        """
        if may_dial != self._may_dial:
            self._is_takeover = may_dial and self._may_dial is False
            self._may_dial = may_dial
            self._idle = _TO_DIAL if may_dial else _OF_OTHER_BOX
            self._follower.notify()
            for name in self._wanted:
                self._on_change(name)

    async def hang_up(self) -> None:
        """Take all lines down, and return once the servers can let the other box in."""
        self.allow(may_dial=False)
        await self.apply(self._wanted)

    async def apply(self, wanted: Mapping[str, Line]) -> None:
        """Keep the lines of `wanted` up, by interface name, and no others. Without permission to
        dial, none is kept.

        Only lines with a change that their daemons see are redialled. A renamed line is (pppd knows
        its interface by name, and would take down another one that gets the name). Return once the
        unwanted lines are gone, without waiting for dials.
        """
        self._note(wanted)
        async with self._turn:
            if not self._is_open:
                await self._end_found(self._dialled(wanted))
                self._is_open = True
            self._left_out.update(self._unlike(self._dialled(wanted)).values())
            self._logins.keep_only({dial_key(line) for line in wanted.values()})
            stale = [name for name, k in self._controllers.items() if k in self._left_out]
            self._left_out.clear()
            await self._drop(stale)
            for name, controller in self._controllers.items():
                controller.line = wanted[name]
            dialled = self._dialled(wanted)
            fresh = [name for name in dialled if name not in self._controllers]
            is_takeover, self._is_takeover = self._is_takeover, False
            spread = min(len(fresh) * _APART_S, _SPREAD_MAX_S) if len(fresh) > 1 else 0.0
            for name in fresh:
                self._keep(wanted[name], 0.0 if is_takeover else spread, is_takeover=is_takeover)
            if not any(line.secret for line in dialled.values()):
                await self._charon.close()

    def outdated(self, wanted: Mapping[str, Line]) -> dict[str, Line | None]:
        """Return the lines, by interface name, that may be up and are not those of `wanted`: they
        were edited or removed, and have not been taken down yet. The value is None for lines that
        an earlier netd dialled.
        """
        dialled = self._dialled(wanted)
        kept = {name: controller.line for name, controller in self._unlike(dialled).items()}
        return {**dict.fromkeys(self._unwanted(dialled)), **self._leaving, **kept}

    def status(self) -> dict[str, LineStatus]:
        """Return the state of each wanted line, by interface name."""
        idle = {} if self._idle is None else dict.fromkeys(self._wanted, self._idle)
        kept = {name: controller.status for name, controller in self._controllers.items()}
        return idle | kept

    def resolvers(self) -> dict[str, tuple[str, ...]]:
        """Return the DNS servers from the peer of each line that is up and has any."""
        found = {n: diagnosis.resolvers(u.read(pppd.RESOLVERS)) for n, u in self._found.items()}
        kept = {name: controller.resolvers for name, controller in self._controllers.items()}
        return {name: servers for name, servers in (found | kept).items() if servers}

    def servers(self) -> frozenset[IPv4Address]:
        """Return the known addresses of the lines' servers."""
        return frozenset(k.server for k in self._controllers.values() if k.server is not None)

    def reserve(self, taken: Taken) -> None:
        """From now on, take down lines that have such addresses."""
        if taken != self._environment.taken:
            self._environment.taken = taken
            self._tell_all()

    def pids(self) -> set[int]:
        """Return the processes that work for lines."""
        found = set().union(*(controller.pids for controller in self._controllers.values()))
        return found | ({self._charon.pid} if self._charon.pid is not None else set())

    # --- Within. ----------------------------------------------------------------------------

    def _note(self, wanted: Mapping[str, Line]) -> None:
        before, self._wanted = self._wanted, dict(wanted)
        if self._idle is not None:
            for name in before.keys() ^ wanted.keys():
                self._on_change(name)

    def _dialled(self, wanted: Mapping[str, Line]) -> Mapping[str, Line]:
        """Return the lines of `wanted` that this box is to keep up."""
        if self._may_dial is not None:
            return wanted if self._may_dial else {}
        up = self._found.keys() | self._controllers.keys()
        return {name: line for name, line in wanted.items() if name in up}

    def _is_stray(self, process: Path) -> bool:
        """Return True for a process of a line that neither `find` nor `open` will handle."""
        folder = daemon_group.folder_of(process)
        if folder is None or self._others in folder.parents:
            return False
        return self._folder.parent not in folder.parents or not daemon_group.is_recorded(folder)

    async def _end_found(self, wanted: Mapping[str, Line]) -> None:
        """End units of an earlier netd that are not those of wanted lines, and their IPsec."""
        stale = {name: self._found[name] for name in self._unwanted(wanted)}
        await asyncio.gather(*(found.end(polite=True) for found in stale.values()))
        for name, found in stale.items():
            daemon_group.remove(found.folder)
            del self._found[name]
            self._on_change(name)
        notes = [note_of(found) for found in self._found.values()]
        secured = [note for note in notes if note.local_port in LINE_PORTS]
        ports = {note.local_port for note in secured}
        await self._charon.keep_only(ports, {note.ike_group for note in secured})

    def _unwanted(self, wanted: Mapping[str, Line]) -> list[str]:
        """Return the names of the units of an earlier netd that are not those of `wanted`."""
        return [
            name
            for name, found in self._found.items()
            if name not in wanted or _key(found) != dial_key(wanted[name])
        ]

    def _unlike(self, wanted: Mapping[str, Line]) -> dict[str, LineController]:
        """Return the controllers of lines that are not those of `wanted`."""
        return {n: k for n, k in self._controllers.items() if not _is_same(k.line, wanted.get(n))}

    async def _drop(self, names: list[str]) -> None:
        controllers = {name: self._controllers.pop(name) for name in names}
        self._leaving = {name: controller.line for name, controller in controllers.items()}
        try:
            await asyncio.gather(*(controller.stop() for controller in controllers.values()))
        finally:
            self._leaving = {}
        for name in names:
            self._on_change(name)

    def _keep(self, line: Line, spread: float, *, is_takeover: bool) -> None:
        controller = LineController(
            line,
            self._folder / line.name,
            environment=self._environment,
            charon=self._charon,
            logins=self._logins,
            turns=self._turns,
            ports=self._secret_ports if line.secret else self._clear_ports,
            on_change=lambda: self._on_change(line.name),
        )
        self._controllers[line.name] = controller
        controller.start(
            self._found.pop(line.name, None),
            random.random() * spread,  # noqa: S311
            is_takeover=is_takeover,
        )

    def _tell_all(self) -> None:
        strange = {
            name for name, controller in self._controllers.items() if controller.strange_link
        }
        for name in strange ^ self._strange:
            self._on_change(name)
        self._strange = strange
        for controller in self._controllers.values():
            controller.tell()


def _key(found: DaemonGroup) -> str:
    with suppress(msgspec.ValidationError):
        return note_of(found).key
    return ""


def _is_same(line: Line, wanted: Line | None) -> bool:
    """Return True if the running line serves as the wanted one."""
    return wanted is not None and dial_key(line) == dial_key(wanted)


def _ports(ports: range, full: str) -> PortRange:
    """Return the local UDP ports of L2TP lines, to be reused as late as possible.

    A server that has not noticed the end of a session would take packets from its port for a part
    of it (Linux's L2TP connects a UDP socket for each tunnel), and the new session would stay
    silent.
    """
    told = say(full, most=len(ports))
    return PortRange(ports, told, first=random.randrange(len(ports)))  # noqa: S311 (no secret)
