"""``egressd serve``: netd and the api as children, started again when they die or hang.

This process does nothing else but start `backup_process` at each full hour, so that it does not
die itself. SIGTERM and SIGINT end both children cleanly, the api first, so that no request meets a
netd that is gone. SIGHUP restarts both without touching traffic (`netd` leaves the kernel state and
the engine workers as they are).

When it dies all the same, its children end too, netd as if to make room for a successor: two
processes of a kind would each undo the other's changes. They notice by their standard input, a pipe
whose other end only this process holds.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, Self

import structlog

from egressd.app import config, listening, timed_backups
from egressd.app.liveness import HUNG_AFTER_S, PIPE
from egressd.app.signals import held_back
from egressd.model.errors import EgressdError

log = structlog.get_logger()

COMMAND: Final = (sys.executable, "-P", "-m", "egressd.app")
"""The command that starts a process; with -P, no module is loaded from the current folder."""
KEPT = "--kept"
"""The argument of a child whose supervisor holds the other end of its standard input."""

_BACKOFF_FIRST_S = 0.1
_BACKOFF_MAX_S = 10.0
_HEALTHY_S = 30.0
"""Seconds after which a child's back-off starts anew when it dies."""
_STOP_S = 15.0
"""Seconds that a child has to end by itself before it is killed."""
_HOUR_S = 3600.0
_FIRST_BACKUP_S = 60.0
"""Seconds from the start until a timed backup that was missed is made: the api opens the database
meanwhile."""
_LOOK_S = 1.0
"""Seconds between looks at a child's last proof that it is alive."""


def when_supervisor_ends(act: Callable[[], None]) -> None:
    """Call `act` once this child's supervisor is gone. Do nothing in a process without a
    supervisor.

    Call this in the running event loop.
    """
    if KEPT not in sys.argv:
        return
    loop = asyncio.get_running_loop()

    def ended() -> None:
        loop.remove_reader(sys.stdin)
        act()

    loop.add_reader(sys.stdin, ended)


class LivenessPipe:
    """The pipe by which one child proves that it is alive (`liveness`). A context manager."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._read, self.write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._has_begun = False
        self.silent_s = 0.0
        """The seconds since the last proof in which this process has run; 0 before the first."""

    def __enter__(self) -> Self:
        self._loop.add_reader(self._read, self._proved)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.remove_reader(self._read)
        os.close(self._read)
        self.handed()

    def handed(self) -> None:
        """Close the end that the child has inherited."""
        if self.write >= 0:
            os.close(self.write)
            self.write = -1

    def _proved(self) -> None:
        if os.read(self._read, 4096):
            self._has_begun, self.silent_s = True, 0.0
        else:
            self._loop.remove_reader(self._read)  # the child has ended, or does not write any more

    def looked(self) -> None:
        """Count a look at the child, `_LOOK_S` after the last one.

        Looks are counted, and not the time: if this process and the child have been frozen
        together, the child has had no time either.
        """
        if self._has_begun:
            self.silent_s += _LOOK_S


class Child:
    """A program that is kept running."""

    def __init__(
        self,
        name: str,
        argv: Sequence[str],
        *,
        restart_signal: signal.Signals,
        listening_at: Callable[[], Sequence[int]] = tuple,
        hung_after_s: float = HUNG_AFTER_S,
    ) -> None:
        """`listening_at` returns the descriptors of the sockets that the program is to listen at;
        it may raise EgressdError. The program is killed after `hung_after_s` seconds without proof
        that it is alive, if it has given one before.
        """
        self._hung_after_s = hung_after_s
        self.name = name
        self._argv = argv
        self._listening_at = listening_at
        self._restart_signal = restart_signal
        self._process: asyncio.subprocess.Process | None = None
        self._is_making_room = False
        self._stopping = asyncio.Event()

    async def run(self) -> None:
        """Keep the program running until `stop`."""
        delay = _BACKOFF_FIRST_S
        loop = asyncio.get_running_loop()
        while not self._stopping.is_set():
            started = loop.time()
            try:
                sockets = self._listening_at()
                handed = {listening.HANDED: ",".join(map(str, sockets))} if sockets else {}
                with LivenessPipe() as liveness:
                    with held_back():
                        self._process = await asyncio.create_subprocess_exec(
                            *self._argv,
                            KEPT,
                            stdin=asyncio.subprocess.PIPE,
                            env={**os.environ, **handed, PIPE: str(liveness.write)},
                            pass_fds=(*sockets, liveness.write),
                        )
                    liveness.handed()
                    self._is_making_room = False
                    if self._stopping.is_set():
                        await self._end(self._process)
                    ended = await self._ended(self._process, liveness)
            except EgressdError as error:
                ended = str(error)
            except OSError as error:  # no memory, or no room for another process
                ended = str(error)
            if self._stopping.is_set():
                return
            if loop.time() - started > _HEALTHY_S:
                delay = _BACKOFF_FIRST_S
            log.warning("restarting a process", process=self.name, reason=ended)
            with suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), delay)
            delay = min(delay * 2, _BACKOFF_MAX_S)

    async def _ended(self, process: asyncio.subprocess.Process, liveness: LivenessPipe) -> str:
        """Wait until the program ends, or kill it if it hangs. Return the reason."""
        waiting = asyncio.create_task(process.wait())
        reason = ""
        while True:
            await asyncio.wait([waiting], timeout=_LOOK_S)
            if waiting.done():
                return reason or f"it ended with code {waiting.result()}"
            liveness.looked()
            if liveness.silent_s > self._hung_after_s and not reason:
                reason = f"it was hung for {self._hung_after_s:.0f} s, and was killed"
                self._signal(signal.SIGKILL)

    def restart(self) -> None:
        """Ask the program to make room for its successor."""
        self._is_making_room = True
        self._signal(self._restart_signal)

    def let_end(self) -> None:
        """Do not start the program again if it ends."""
        self._stopping.set()

    async def stop(self) -> bool:
        """End the program: SIGTERM, and SIGKILL if it does not react. True if it ran, and has then
        done the work of a regular stop.
        """
        self._stopping.set()
        process = self._process
        if process is None or process.returncode is not None:
            return False
        was_making_room = self._is_making_room
        await self._end(process)
        return process.returncode == 0 and not was_making_room

    async def _end(self, process: asyncio.subprocess.Process) -> None:
        self._signal(signal.SIGTERM)
        try:
            await asyncio.wait_for(process.wait(), _STOP_S)
        except TimeoutError:
            log.warning("killing a process that did not exit in time", process=self.name)
            self._signal(signal.SIGKILL)
            await process.wait()

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None and self._process.returncode is None:
            with suppress(ProcessLookupError):
                self._process.send_signal(number)


def run(path: Path | None) -> None:
    """Run netd and the api until SIGTERM or SIGINT."""
    # With the umask of some shells, directories that the api's user enters would be root's alone.
    os.umask(0o022)
    if sys.version_info < (3, 12):
        # Otherwise a thread waits for each child: where a process just fits, a thread may not.
        asyncio.set_child_watcher(asyncio.PidfdChildWatcher())
    asyncio.run(_supervise(path))


async def _supervise(path: Path | None) -> None:
    options = [] if path is None else ["--config", str(path)]
    held = listening.HeldSockets()

    def listening_at() -> tuple[int, ...]:
        # The file may have changed since the last api was started.
        wanted = config.load(path).api
        held.want((wanted.listen, wanted.tls_listen))
        return held.descriptors

    netd = Child("netd", [*COMMAND, "netd", *options], restart_signal=signal.SIGUSR1)
    api = Child(
        "api",
        [*COMMAND, "api", *options],
        restart_signal=signal.SIGTERM,
        listening_at=listening_at,
    )
    ending = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ending.set)
    children = (netd, api)
    loop.add_signal_handler(signal.SIGHUP, _restart, children)
    running = [asyncio.create_task(child.run()) for child in children]
    backups = asyncio.create_task(make_backups(path))
    await ending.wait()
    backups.cancel()
    netd.let_end()  # Ctrl-C sends SIGINT to the children, too
    await api.stop()
    is_blocking = await netd.stop()
    await asyncio.wait([*running, backups])
    held.want(())
    if not is_blocking:
        # netd was dead, or did not react: no client may go on because of that.
        await (await asyncio.create_subprocess_exec(*COMMAND, "block")).wait()


async def make_backups(path: Path | None, first_s: float = _FIRST_BACKUP_S) -> None:
    """Start a process that makes the timed backup if one is due, after `first_s` seconds and then
    at each full hour, until it is cancelled.
    """
    options = [] if path is None else ["--config", str(path)]
    wait_s = first_s
    while True:
        await asyncio.sleep(wait_s)
        # A failure is recorded by the process; if that cannot start, the api reports it as late.
        with suppress(OSError, EgressdError):
            if timed_backups.read(config.load(path).data.dir) is not None:
                await _ended_by_itself(
                    await asyncio.create_subprocess_exec(*COMMAND, "backup", *options)
                )
        wait_s = _HOUR_S - time.time() % _HOUR_S


async def _ended_by_itself(process: asyncio.subprocess.Process) -> None:
    """Wait until a process ends. End it if this task is cancelled."""
    try:
        await process.wait()
    except asyncio.CancelledError:
        with suppress(ProcessLookupError):
            process.terminate()
        await process.wait()
        raise


def _restart(children: Sequence[Child]) -> None:
    for child in children:
        child.restart()
