"""``egressd serve``: netd and the api as children, started again when they die.

This process does nothing else, so that it does not die itself. SIGTERM and SIGINT end both
children cleanly, the api first, so that no request meets a netd that is gone. SIGHUP restarts
both without touching traffic (`netd` leaves the kernel state and the engine workers as they are).

When it dies all the same, its children end too, netd as if to make room: two of a kind would
each undo what the other does. They know by their standard input, a pipe that it alone holds.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import structlog

from egressd.app import config, listening
from egressd.app.endings import held_back
from egressd.model.errors import EgressdError

log = structlog.get_logger()

COMMAND: Final = (sys.executable, "-P", "-m", "egressd.app")
"""What a process is started by; -P: no module is to come from the folder it happens to be in."""
KEPT = "--kept"
"""Tells a child that its keeper holds the other end of its standard input."""

_BACKOFF_FIRST_S = 0.1
_BACKOFF_MAX_S = 10.0
_HEALTHY_S = 30.0
"""A child that ran this long starts its back-off anew when it dies."""
_STOP_S = 15.0
"""Seconds a child has to end by itself before it is killed."""


def when_keeper_ends(act: Callable[[], None]) -> None:
    """In a child: call `act` once its keeper is gone. Nothing happens in a process without one.

    To be called in the running event loop.
    """
    if KEPT not in sys.argv:
        return
    loop = asyncio.get_running_loop()

    def ended() -> None:
        loop.remove_reader(sys.stdin)
        act()

    loop.add_reader(sys.stdin, ended)


class Child:
    """A program that is kept running."""

    def __init__(
        self,
        name: str,
        argv: Sequence[str],
        *,
        restart_signal: signal.Signals,
        listening_at: Callable[[], Sequence[int]] = tuple,
    ) -> None:
        """`listening_at` gives the descriptors of sockets that it is to listen at; raises
        EgressdError.
        """
        self.name = name
        self._argv = argv
        self._listening_at = listening_at
        self._restart_signal = restart_signal
        self._process: asyncio.subprocess.Process | None = None
        self._is_making_room = False
        self._stopping = asyncio.Event()

    async def run(self) -> None:
        """Keep it running until `stop`."""
        delay = _BACKOFF_FIRST_S
        loop = asyncio.get_running_loop()
        while not self._stopping.is_set():
            started = loop.time()
            try:
                sockets = self._listening_at()
                handed = {listening.HANDED: ",".join(map(str, sockets))} if sockets else {}
                with held_back():
                    self._process = await asyncio.create_subprocess_exec(
                        *self._argv,
                        KEPT,
                        stdin=asyncio.subprocess.PIPE,
                        env={**os.environ, **handed},
                        pass_fds=sockets,
                    )
                self._is_making_room = False
                if self._stopping.is_set():
                    await self._end(self._process)
                ended = f"it ended with code {await self._process.wait()}"
            except EgressdError as error:
                ended = str(error)
            except OSError as error:  # there is no memory for it, or no room for another process
                ended = str(error)
            if self._stopping.is_set():
                return
            if loop.time() - started > _HEALTHY_S:
                delay = _BACKOFF_FIRST_S
            log.warning("restarting a process", process=self.name, reason=ended)
            with suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), delay)
            delay = min(delay * 2, _BACKOFF_MAX_S)

    def restart(self) -> None:
        """Ask it to make room for its successor."""
        self._is_making_room = True
        self._signal(self._restart_signal)

    def let_end(self) -> None:
        """Do not start it again should it end."""
        self._stopping.set()

    async def stop(self) -> bool:
        """End it: SIGTERM, and SIGKILL if it does not listen. Whether it ran, and has done then
        what it does when it is told to stop.
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
    """Run both until SIGTERM or SIGINT."""
    # What the api's user is to enter would be root's alone by the umask of some shells.
    os.umask(0o022)
    if sys.version_info < (3, 12):
        # Else a thread waits for each child, which cannot be had where a process just can.
        asyncio.set_child_watcher(asyncio.PidfdChildWatcher())
    asyncio.run(_supervise(path))


async def _supervise(path: Path | None) -> None:
    options = [] if path is None else ["--config", str(path)]
    held = listening.Held()

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
    await ending.wait()
    netd.let_end()  # Ctrl-C tells our children too
    await api.stop()
    is_blocking = await netd.stop()
    await asyncio.wait(running)
    held.want(())
    if not is_blocking:
        # It was dead, or heard of nothing: nobody goes on for that.
        await (await asyncio.create_subprocess_exec(*COMMAND, "block")).wait()


def _restart(children: Sequence[Child]) -> None:
    for child in children:
        child.restart()
