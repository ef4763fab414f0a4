"""One box of a pair: the daemons that move addresses and carry flows, and this box's role.

keepalived and conntrackd outlive netd, as the daemons of lines do: a later netd finds them. They
end with `PairedGateway.close`, whereupon the other box takes over at once. keepalived decides about
the role; netd only says, by the file of `vrrp.track`, whether the box may be active.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import stat
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import closing, suppress
from ipaddress import IPv4Interface
from pathlib import Path
from typing import Final

import structlog

from egressd.model.pair import Pair, PairRole, faults_here, holds_shared, unaddressed
from egressd.model.wording import Sentence, say
from egressd.netd.cluster import flows, sync_guard, takeover, vrrp
from egressd.netd.cluster.cut_flow_sync import CutFlowSync
from egressd.netd.cluster.other_routers import OtherRouters
from egressd.netd.kernel import addresses
from egressd.netd.kernel.cut_flows import CutFlows
from egressd.netd.kernel.nft import Nft
from egressd.netd.system import daemon_group
from egressd.netd.system.daemon_group import DaemonGroup, prepare
from egressd.netd.system.files import write_private
from egressd.netd.system.lenience import as_far_as_possible
from egressd.netd.system.periodic import PeriodicTask
from egressd.planner.topology import is_line

log = structlog.get_logger()

_VRRP, _FLOWS = "vrrp", "flows"
"""The daemons' folders in the pair's."""
_LOOK_S: Final = 0.1
"""Seconds between two looks at the lease: a part of the time in which the other box takes over."""
_AGAIN_S: Final = 2.0
"""Seconds from one start of a daemon to the next one."""
_READ_MAX: Final = 1 << 16
"""Bytes of the pipe that are read at once."""
_READDRESSED_S: Final = 5.0
"""Seconds that this box's addresses must be others before conntrackd, which reads its file at its
start alone, is started again for them: a lease of a WAN may come back."""
_FAR_S: Final = 1e9
"""Seconds ahead of a time that does not come: 30 years."""


class _Daemon:
    """A daemon of the pair, which is started again when it has ended."""

    def __init__(self, name: str, folder: Path, pair: Pair) -> None:
        self.name = name
        self._note = {"pair": repr(pair)}
        self.folder = folder
        self.problem: Sentence | None = None
        self._unit: DaemonGroup | None = None
        self._started = -_AGAIN_S

    async def find(self) -> bool:
        """Find the daemon that an earlier netd started. One of another pair is ended."""
        if self._unit is None:
            self._unit = await DaemonGroup.find(self.folder)
        if self._unit is not None and self._unit.note != self._note:
            await self.end()
        return self._unit is not None

    @property
    def is_due(self) -> bool:
        """True if it is to be started now."""
        is_over = self._unit is None or self._unit.is_over
        return is_over and time.monotonic() - self._started >= _AGAIN_S

    @property
    def pid(self) -> int | None:
        """Its process, if it runs."""
        return None if self._unit is None or self._unit.is_over else self._unit.pid

    async def start(self, command: list[str], files: dict[str, str]) -> None:
        """Start it in its folder, which is made again, with its `files`."""
        if self._unit is not None:
            self._report(self._unit.how)
            await self.end()
        self._started = time.monotonic()
        if not os.access(command[0], os.X_OK):
            self.problem = say("pair-daemon-missing", name=self.name)
            return
        prepare(self.folder, files)
        self._unit = DaemonGroup.start(self.folder, command, covers={}, note=self._note)

    def settle(self) -> None:
        """Forget the problem of a daemon that has run for a while."""
        if self.pid is not None and time.monotonic() - self._started > 2 * _AGAIN_S:
            self.problem = None

    async def end(self) -> None:
        """End it politely."""
        if self._unit is not None:
            await self._unit.end(polite=True)
            daemon_group.remove(self.folder)
            self._unit = None

    def release(self) -> None:
        """Leave it running for a later netd."""
        if self._unit is not None:
            self._unit.release()

    def _report(self, how: Sentence) -> None:
        self.problem = say("pair-daemon-ends", name=self.name, how=how)
        assert self._unit is not None
        said = self._unit.read(daemon_group.LOG)[-500:]
        log.warning("a daemon of the pair has ended", name=self.name, how=str(how), said=said)


class PairedGateway:
    """This box as one of a pair.

    `may_be_active` says whether the box's kernel lets clients through, or None while that cannot be
    said: then all stays as an earlier netd left it. `is_gated` says whether the kernel lets clients
    through by a lease only. `present` returns this machine's interfaces with their addresses.
    `on_role` is called with each new role, and `on_active` with whether the box is active: first
    once that is known, and then with each new role. `cut_flows` are those of this box's kernel.
    """

    def __init__(
        self,
        pair: Pair,
        folder: Path,
        *,
        present: Callable[[], Mapping[str, Collection[IPv4Interface]]],
        may_be_active: Callable[[], bool | None],
        is_gated: Callable[[], bool],
        on_role: Callable[[PairRole], None],
        on_active: Callable[[bool], None],
        cut_flows: CutFlows,
    ) -> None:
        self._pair = pair
        self.folder: Final = folder
        # Kept open: netd knows its own changes of nftables by the sockets that it has.
        self._nft = Nft()
        self._present = present
        self._faults: list[str] = []
        self._unaddressed: list[str] = []
        self._may_be_active = may_be_active
        self._is_gated = is_gated
        self._on_role = on_role
        self._on_active = on_active
        self._keepalived = _Daemon("keepalived", folder / _VRRP, pair)
        self._conntrackd = _Daemon("conntrackd", folder / _FLOWS, pair)
        self._other_routers = OtherRouters(pair)
        self._cut_flow_sync = CutFlowSync(pair.sync, cut_flows)
        self._role: PairRole = "fault"
        self._track = ""
        self._pipe = -1
        self._heard = b""
        self._flow_file = ""
        """The file of the conntrackd that runs; empty while it is not known."""
        self._readdressed_at: float | None = None
        """The time, of the monotonic clock, since which that file does not fit this box."""
        self._is_guarded = False
        """True once the table of `sync_guard` is loaded."""
        self._has_begun = False
        self._poking: set[asyncio.Task[None]] = set()
        self._looking = PeriodicTask("look after the pair's daemons", self._look, _LOOK_S)

    @property
    def role(self) -> PairRole:
        """The role that keepalived has reported last."""
        return self._role

    def problems(self) -> tuple[Sentence, ...]:
        """Return a sentence about each daemon that does not run, about a sync link without an
        answer, about each way in which the configuration does not fit this box, which is not active
        then, and about each router of others that gets in the pair's way.
        """
        daemons = self._keepalived.problem, self._conntrackd.problem
        found = (*daemons, self._cut_flow_sync.problem)
        unfit = (say("pair-unfit", fault=fault) for fault in self._faults)
        lacking = (say("pair-unaddressed", name=name) for name in self._unaddressed)
        wrong = (problem for problem in found if problem is not None)
        return (*wrong, *unfit, *lacking, *self._other_routers.problems())

    def pids(self) -> list[int]:
        """Return the daemons that run."""
        found = (self._keepalived.pid, self._conntrackd.pid)
        return [pid for pid in found if pid is not None]

    def open(self) -> None:
        """Find the daemons of an earlier netd or start them, and look after them from now on."""
        self._looking.start()
        self._cut_flow_sync.open()

    async def guard_again(self) -> None:
        """Load the table of `sync_guard` again, soon: another program may have removed it."""
        self._is_guarded = False
        self._looking.wake()

    async def close(self) -> None:
        """End the daemons. The other box is active then, if it can be.

        A step that fails is logged, and keeps nothing else from its end.
        """
        await self._stop_looking()
        with as_far_as_possible("end keepalived"):
            await self._keepalived.end()
        with as_far_as_possible("remove the shared addresses"):
            addresses.remove(self._pair.shared)
        with as_far_as_possible("end conntrackd"):
            await self._conntrackd.end()
        await self._cut_flow_sync.close()
        with as_far_as_possible("remove the guard of the sync link"):
            self._nft.run(sync_guard.removal())
        self._nft.close()

    async def release(self) -> None:
        """Leave the daemons running for a later netd."""
        await self._stop_looking()
        self._keepalived.release()
        self._conntrackd.release()
        await self._cut_flow_sync.close()
        self._nft.close()

    async def _stop_looking(self) -> None:
        await self._looking.close()
        for task in self._poking:
            task.cancel()
        self._close_pipe()
        self._other_routers.close()

    @property
    def _vrrp_files(self) -> dict[str, str]:
        text = vrrp.configuration(self._pair, self._keepalived.folder)
        return {
            vrrp.CONFIGURATION: text,
            vrrp.TRACK: vrrp.track(may_be_active=False),
            vrrp.CHECK: vrrp.check(self._keepalived.folder),
            vrrp.ALIVE: "",
        }

    @property
    def _flow_files(self) -> dict[str, str]:
        # Those of VPN lines come and go, and no client's flow begins at one.
        present = self._present().items()
        own = [each.ip for name, found in present if not is_line(name) for each in found]
        text = flows.configuration(self._pair, self._conntrackd.folder, own)
        return {flows.CONFIGURATION: text}

    async def _look(self) -> None:
        # First, whatever the other steps come to: without a lease the other box must take over.
        present = self._present()
        self._faults = [*faults_here(self._pair, present)]
        self._unaddressed = unaddressed(self._pair, present)
        may_be_active = self._may_be_active()
        if may_be_active is not None:
            self._allow(may_be_active=may_be_active and not self._faults)
        self._live()
        if not self._is_guarded:
            self._nft.run(sync_guard.script(self._pair))
            self._is_guarded = True
        if not self._has_begun:
            await self._begin()
        if self._keepalived.pid is None:
            # One that was killed leaves its addresses, and the other box has them by now.
            addresses.remove(self._pair.shared)
            self._take_role("fault")
        if self._keepalived.is_due:
            self._close_pipe()
            self._track = ""
            await self._keepalived.start(vrrp.command(self._keepalived.folder), self._vrrp_files)
            self._live()  # its file has the wall clock's time, which is far ahead of any uptime
            self._open_pipe()
        await self._follow_addresses()
        if self._conntrackd.is_due:
            files = self._flow_files
            await self._conntrackd.start(flows.command(self._conntrackd.folder), files)
            self._flow_file = files[flows.CONFIGURATION]
        self._keepalived.settle()
        self._conntrackd.settle()
        self._other_routers.look(time.monotonic())

    async def _follow_addresses(self) -> None:
        """End conntrackd if this box has had other addresses for a while: it is started again soon,
        and gets all flows of the other box.
        """
        if self._conntrackd.pid is None or self._flow_files[flows.CONFIGURATION] == self._flow_file:
            self._readdressed_at = None
        elif self._readdressed_at is None:
            self._readdressed_at = time.monotonic()
        elif time.monotonic() - self._readdressed_at >= _READDRESSED_S:
            log.info("conntrackd is started again: this box has other addresses")
            await self._conntrackd.end()

    async def _begin(self) -> None:
        """Find the daemons of an earlier netd, and this box's role. Raises OSError."""
        if await self._keepalived.find():
            # The netd that it was started by may have given its file another kind of time.
            folder = self._keepalived.folder
            write_private(folder / vrrp.CHECK, vrrp.check(folder).encode())
            self._live()
            self._close_pipe()
            self._open_pipe()
            # What keepalived has reported since is heard later.
            self._role = "active" if holds_shared(self._pair, self._present()) else "standby"
            self._on_role(self._role)
        self._on_active(self._role == "active")
        if await self._conntrackd.find():
            path = self._conntrackd.folder / flows.CONFIGURATION
            with as_far_as_possible(f"read {path}"):
                self._flow_file = path.read_text("utf-8")
        self._has_begun = True

    def _allow(self, *, may_be_active: bool) -> None:
        """Write the file of `vrrp.track`, if it changes. Raises OSError."""
        track = vrrp.track(may_be_active=may_be_active, unaddressed=len(self._unaddressed))
        if track != self._track and self._keepalived.pid is not None:
            # In place: keepalived watches the file itself (inotify(7)). Never empty, which would be
            # read as permission: both texts have one length.
            descriptor = os.open(self._keepalived.folder / vrrp.TRACK, os.O_WRONLY | os.O_CLOEXEC)
            try:
                os.pwrite(descriptor, track.encode(), 0)
            finally:
                os.close(descriptor)
            self._track = track

    def _live(self) -> None:
        """Touch the file of `vrrp.check`. Without a gate, the kernel serves clients without netd,
        for as long as it takes: then the time is one far ahead. Raises OSError.
        """
        if self._keepalived.pid is not None:
            now = vrrp.uptime_s() + (0 if self._is_gated() else _FAR_S)
            os.utime(self._keepalived.folder / vrrp.ALIVE, (now, now))

    # --- The pipe of roles. --------------------------------------------------------------

    def _open_pipe(self) -> None:
        path = self._keepalived.folder / vrrp.FIFO
        if self._keepalived.pid is None:
            return
        with suppress(FileExistsError):
            os.mkfifo(path, 0o600)
        # For both: a pipe without another reader or writer has no end.
        self._pipe = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        if not stat.S_ISFIFO(os.fstat(self._pipe).st_mode):
            self._close_pipe()
            return
        self._heard = b""
        asyncio.get_running_loop().add_reader(self._pipe, self._hear)

    def _close_pipe(self) -> None:
        if self._pipe >= 0:
            asyncio.get_running_loop().remove_reader(self._pipe)
            os.close(self._pipe)
            self._pipe = -1

    def _hear(self) -> None:
        with suppress(BlockingIOError):
            self._heard += os.read(self._pipe, _READ_MAX)
        *lines, self._heard = self._heard.split(b"\n")
        for line in lines:
            role = vrrp.role_of(line.decode("utf-8", "replace"))
            if role is not None:
                self._take_role(role)

    def _take_role(self, role: PairRole) -> None:
        if role == self._role:
            return
        self._role = role
        log.info("role of this box", role=role)
        self._on_active(role == "active")
        if role == "active":
            task = asyncio.create_task(self._poke())
            self._poking.add(task)
            task.add_done_callback(self._poking.discard)
        self._on_role(role)

    async def _poke(self) -> None:
        try:
            poked = await asyncio.to_thread(takeover.poke_clients_of_nodes)
            log.info("clients of nodes know that their connections have ended", connections=poked)
        except OSError as error:
            log.warning("clients of nodes cannot be notified", error=str(error))


async def end_former(folder: Path) -> None:
    """End the daemons of a pair that the configuration has no more, and remove what they left: the
    shared addresses are the other box's. `folder` is the pair's.
    """
    log.info("this box is in no pair any more")
    for name in (_VRRP, _FLOWS):
        with as_far_as_possible(f"end {name}"):
            unit = await DaemonGroup.find(folder / name)
            if unit is not None:
                await unit.end(polite=True)
    with as_far_as_possible("remove the shared addresses"):
        addresses.remove(left_in(folder))
    with as_far_as_possible("remove the guard of the sync link"), closing(Nft()) as nft:
        nft.run(sync_guard.removal())
    with as_far_as_possible("remove the pair's folder"):
        shutil.rmtree(folder)


def left_in(folder: Path) -> dict[str, IPv4Interface]:
    """Return the shared addresses of the keepalived that was started last, from the pair's folder;
    none if there is no such file.
    """
    with suppress(OSError, ValueError):
        return vrrp.addresses_in((folder / _VRRP / vrrp.CONFIGURATION).read_text("utf-8"))
    return {}
