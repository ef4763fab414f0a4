"""``egressd serve``: netd and the api as children, started again when they die or hang.

This process does nothing else but start `backup_process` at each full hour, so that it does not die
itself, and loads nothing but small parts of the standard library: `cli.serve` has read the
configuration, and is replaced by it (execve(2)). SIGTERM and SIGINT end both children cleanly, the
api first, so that no request meets a netd that is gone. SIGHUP restarts both without touching
traffic (`netd` leaves the kernel state and the engine workers as they are).

When it dies all the same, its children end too, netd as if to make room for a successor: two
processes of a kind would each undo the other's changes. They notice by their standard input, a pipe
whose other end only this process holds.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import time
from contextlib import suppress

from egressd.app import log_lines
from egressd.app.held_sockets import HeldSockets
from egressd.app.hourly import HourlyProgram

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path
    from typing import Final

COMMAND: Final = (sys.executable, "-P", "-m", "egressd.app")
"""The command that starts a process; with -P, no module is loaded from the current folder."""
KEPT: Final = "--kept"
"""The argument of a child whose supervisor holds the other end of its standard input."""
HANDED: Final = "EGRESSD_LISTENING"
"""The environment variable with the descriptors of an api's sockets, separated by commas."""
PIPE: Final = "EGRESSD_LIVENESS_PIPE"
"""The environment's variable with the number of the pipe for proofs of life (`liveness`)."""
HUNG_AFTER_S: Final = 15.0
"""Seconds without proof after which a child is killed; WatchdogSec= of the units, too."""

_BACKOFF_FIRST_S = 0.1
_BACKOFF_MAX_S = 10.0
_HEALTHY_S = 30.0
"""Seconds after which a child's back-off starts anew when it dies."""
_STOP_S = 15.0
"""Seconds that a child has to end by itself before it is killed."""
_LOOK_S = 1.0
"""Seconds between looks at a child's last proof that it is alive."""
_HELD_BACK = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1)
"""The signals that a child blocks until it has handlers for them (`signals.ENDINGS`)."""


def when_supervisor_ends(act: Callable[[], None]) -> None:
    """Call `act` once this child's supervisor is gone. Do nothing in a process without a
    supervisor.

    Call this in the running event loop.
    """
    if KEPT not in sys.argv:
        return
    import asyncio

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
        hung_after_s: float = HUNG_AFTER_S,
    ) -> None:
        """`listening_at` returns the descriptors of the sockets that the program is to listen at;
        it may raise OSError. The program is killed after `hung_after_s` seconds without proof that
        it is alive, if it has given one before.
        """
        self.name = name
        self.is_stopping = False
        self._argv = argv
        self._restart_signal = restart_signal
        self._listening_at = listening_at
        self._hung_after_s = hung_after_s
        self._pid = self._pidfd = self._stdin = self._proofs = -1
        self._is_making_room = False
        self._code: int | None = None
        self._delay_s = _BACKOFF_FIRST_S
        self._started = self._due = time.monotonic()
        """The times of the last start, and of the next start or look."""
        self._has_begun = False
        self._silent_s = 0.0
        """The seconds since the last proof in which this process has run.

        Looks are counted, and not the time: if this process and the child have been frozen
        together, the child has had no time either.
        """
        self._reason = ""

    @property
    def is_running(self) -> bool:
        """True until the program has ended."""
        return self._pid > 0

    @property
    def watched(self) -> list[int]:
        """The descriptors that are readable when the program gives a proof, or ends."""
        return [each for each in (self._proofs, self._pidfd) if each >= 0]

    @property
    def due(self) -> float | None:
        """The time of the next start or look, or None if there is none."""
        return self._due if self.is_running or not self.is_stopping else None

    def turn(self) -> None:
        """Do what is to be done now: note proofs and the end, look at the child, start it."""
        if self._proofs >= 0:
            self._read_proofs()
        if self.is_running:
            self._reap()
        if self.due is None or time.monotonic() < self._due:
            return
        if self.is_running:
            self._look()
        else:
            self._start()

    def _start(self) -> None:
        self._started = time.monotonic()
        self._code, self._reason, self._is_making_room = None, "", False
        self._has_begun, self._silent_s = False, 0.0
        try:
            self._spawn()
        except OSError as error:  # no memory, or no room for another process, or a socket
            self._ended(str(error))
        else:
            self._due = self._started + _LOOK_S

    def _spawn(self) -> None:
        sockets = self._listening_at()
        environment = {**os.environ}
        if sockets:
            environment[HANDED] = ",".join(map(str, sockets))
        theirs, self._stdin = os.pipe2(os.O_CLOEXEC)
        self._proofs, proving = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        environment[PIPE] = str(proving)
        handed = (*sockets, proving)
        try:
            for each in handed:
                os.set_inheritable(each, True)
            self._pid = os.posix_spawnp(
                self._argv[0],
                [*self._argv, KEPT],
                environment,
                file_actions=[(os.POSIX_SPAWN_DUP2, theirs, 0)],
                setsigmask=_HELD_BACK,
                setsigdef=(signal.SIGPIPE, signal.SIGXFSZ),
            )
            self._pidfd = os.pidfd_open(self._pid)
        except OSError:
            self._close()
            raise
        finally:
            for each in sockets:
                os.set_inheritable(each, False)
            os.close(theirs)
            os.close(proving)

    def _read_proofs(self) -> None:
        try:
            proof = os.read(self._proofs, 4096)
        except BlockingIOError:
            return
        if proof:
            self._has_begun, self._silent_s = True, 0.0
        else:  # the child has ended, or does not write any more
            os.close(self._proofs)
            self._proofs = -1

    def _look(self) -> None:
        self._due = time.monotonic() + _LOOK_S
        if self._has_begun:
            self._silent_s += _LOOK_S
        if self._silent_s > self._hung_after_s and not self._reason:
            self._reason = f"it was hung for {self._hung_after_s:.0f} s, and was killed"
            self._signal(signal.SIGKILL)

    def _reap(self) -> None:
        pid, status = os.waitpid(self._pid, os.WNOHANG)
        if pid:
            self._code = os.waitstatus_to_exitcode(status)
            self._ended(self._reason or f"it ended with code {self._code}")

    def _ended(self, reason: str) -> None:
        self._close()
        if self.is_stopping:
            return
        now = time.monotonic()
        if now - self._started > _HEALTHY_S:
            self._delay_s = _BACKOFF_FIRST_S
        log_lines.warn("restarting a process", process=self.name, reason=reason)
        self._due = now + self._delay_s
        self._delay_s = min(self._delay_s * 2, _BACKOFF_MAX_S)

    def _close(self) -> None:
        for each in (self._pidfd, self._stdin, self._proofs):
            if each >= 0:
                os.close(each)
        self._pid = self._pidfd = self._stdin = self._proofs = -1

    def restart(self) -> None:
        """Ask the program to make room for its successor."""
        self._is_making_room = True
        self._signal(self._restart_signal)

    def let_end(self) -> None:
        """Do not start the program again if it ends."""
        self.is_stopping = True

    def stop(self, turn: Callable[[float], None]) -> bool:
        """End the program: SIGTERM, and SIGKILL if it does not react. True if it ran, and has then
        done the work of a regular stop. `turn` waits for what comes next, until a time at most.
        """
        self.let_end()
        if not self.is_running:
            return False
        was_making_room = self._is_making_room
        self._signal(signal.SIGTERM)
        deadline = time.monotonic() + _STOP_S
        while self.is_running and time.monotonic() < deadline:
            turn(deadline)
        if self.is_running:
            log_lines.warn("killing a process that did not exit in time", process=self.name)
            self._signal(signal.SIGKILL)
            while self.is_running:
                turn(time.monotonic() + _LOOK_S)
        return self._code == 0 and not was_making_room

    def _signal(self, number: signal.Signals) -> None:
        if self.is_running:
            os.kill(self._pid, number)


class Supervisor:
    """Children, and the signals for this process."""

    def __init__(self, children: Sequence[Child], others: Sequence[HourlyProgram] = ()) -> None:
        self._children = children
        self._all: list[Child | HourlyProgram] = [*children, *others]
        self._heard: set[int] = set()
        self._woken, waking = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(waking, warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, lambda heard, _: self._heard.add(heard))

    def run(self) -> None:
        """Keep the children running until SIGTERM or SIGINT. SIGHUP restarts them."""
        while not self._heard & {signal.SIGTERM, signal.SIGINT}:
            if signal.SIGHUP in self._heard:
                self._heard.discard(signal.SIGHUP)
                for child in self._children:
                    child.restart()
            self.turn()

    def turn(self, deadline: float | None = None) -> None:
        """Wait for what comes next, until `deadline` at most, and act on it."""
        poll = select.poll()
        poll.register(self._woken, select.POLLIN)
        for child in self._all:
            for each in child.watched:
                poll.register(each, select.POLLIN)
        times = [due for child in self._all if (due := child.due) is not None]
        times += [] if deadline is None else [deadline]
        left_s = max(min(times) - time.monotonic(), 0.0) if times else None
        poll.poll(None if left_s is None else left_s * 1000)
        with suppress(BlockingIOError):
            os.read(self._woken, 4096)
        for child in self._all:
            child.turn()


class Endpoints:
    """The endpoints that the configuration names, read again by a process when the file differs."""

    def __init__(self, file: str, options: Sequence[str], endpoints: Sequence[str]) -> None:
        self._file = file
        self._options = options
        self._endpoints = endpoints
        self._seen = self._look()

    def current(self) -> Sequence[str]:
        """Return the endpoints. Raises OSError with the faults of the file."""
        found = self._look()
        if found != self._seen:
            self._endpoints = _read_endpoints(self._options)
            self._seen = found
        return self._endpoints

    def _look(self) -> tuple[int, ...]:
        try:
            found = os.stat(self._file)  # noqa: PTH116 - pathlib is not loaded here
        except OSError:
            return ()
        return found.st_dev, found.st_ino, found.st_mtime_ns, found.st_size


def _read_endpoints(options: Sequence[str]) -> list[str]:
    read, write = os.pipe2(os.O_CLOEXEC)
    with open(read) as answer:
        try:
            pid = os.posix_spawn(
                COMMAND[0],
                [*COMMAND, "endpoints", *options],
                os.environ,
                file_actions=[(os.POSIX_SPAWN_DUP2, write, 1), (os.POSIX_SPAWN_DUP2, write, 2)],
            )
        finally:
            os.close(write)
        lines = answer.read().splitlines()
    _, status = os.waitpid(pid, 0)
    if status:
        raise OSError("; ".join(lines))
    return lines


def command(file: str, options: Sequence[str], endpoints: Sequence[str], record: Path) -> list[str]:
    """Return the command line of this program: `file` is the configuration's, `options` those of
    its children, `endpoints` the places that the api listens at, `record` that of timed backups.
    """
    # By its path: to run a module by name loads several others.
    return [sys.executable, "-P", __file__, file, str(record), *endpoints, *options]


def main(file: str, record: str, first: str, second: str, *options: str) -> None:
    """Run netd and the api until SIGTERM or SIGINT."""
    # With the umask of some shells, directories that the api's user enters would be root's alone.
    os.umask(0o022)
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208 - pathlib is not loaded here
        if int(name) > 2:
            with suppress(OSError):  # one was the listing's own
                os.set_inheritable(int(name), False)
    held, endpoints = HeldSockets(), Endpoints(file, options, (first, second))

    def listening_at() -> tuple[int, ...]:
        # The file may have changed since the last api was started.
        held.want(endpoints.current())
        return held.descriptors

    netd = Child("netd", [*COMMAND, "netd", *options], restart_signal=signal.SIGUSR1)
    api = Child(
        "api",
        [*COMMAND, "api", *options],
        restart_signal=signal.SIGTERM,
        listening_at=listening_at,
    )
    backups = HourlyProgram([*COMMAND, "backup", *options], record)
    supervisor = Supervisor((netd, api), (backups,))
    supervisor.run()
    backups.stop()
    netd.let_end()  # Ctrl-C sends SIGINT to the children, too
    api.stop(supervisor.turn)
    is_blocking = netd.stop(supervisor.turn)
    held.want(())
    if not is_blocking:
        # netd was dead, or did not react: no client may go on because of that.
        os.waitpid(os.posix_spawn(COMMAND[0], [*COMMAND, "block"], os.environ), 0)


if __name__ == "__main__":
    main(*sys.argv[1:])
