"""The process of an engine worker, from its start as root until its end.

It listens on a Unix socket that only root can reach, then becomes the given user, with the
capabilities that sing-box needs for TPROXY, packet marks and low ports. It outlives netd: it
belongs to no terminal, holds nothing of netd's, and a later netd finds it by its socket. While it
lives it locks the file beside its socket that contains its process id.

A trial worker also measures delays, and ends with its first connection.
"""

from __future__ import annotations

import asyncio
import logging
import os
import resource
import socket
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from egressd.netd.engine import answers, fragments, outbound_errors
from egressd.netd.engine.lock import claim
from egressd.netd.engine.rule_sets import FOLDER
from egressd.netd.system import privileges
from egressd.netd.system.privileges import Capability

CAPABILITIES: Final = frozenset(
    {Capability.NET_ADMIN, Capability.NET_RAW, Capability.NET_BIND_SERVICE}
)
"""Capabilities for IP_TRANSPARENT and SO_MARK, for SO_BINDTODEVICE, and for proxy services below
port 1024."""

_OOM_SCORE: Final = "500"
"""OOM score adjustment of a trial worker, in thousandths of the machine's memory that count as
taken in addition to its own (proc_pid_oom_score_adj(5)). netd's other processes have that of its
unit."""

_LINK: Final = "anon_inode:bpf_link"
"""The kernel's name for a program at a hook (``bpf_link_new_fd`` in its bpf/syscall.c)."""


class WorkerOptions(NamedTuple):
    """A worker's socket, its user, the number of files that it may open, and its kind."""

    socket: Path
    uid: int
    gid: int
    descriptors: int
    trial: bool


def _listen(path: Path) -> socket.socket:
    path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(str(path))
    listener.listen()
    return listener


def _limit_descriptors(wanted: int) -> None:
    """Set the limit of open files, or as much of it as is allowed."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))


def _close_inherited() -> None:
    """Close the files that netd had open, except those that keep ports from other users
    (`egressd.netd.engine.reserved`). libnftables opens netlink sockets without close-on-exec: none
    of them may stay here.
    """
    for file in [*Path("/proc/self/fd").iterdir()]:
        with suppress(OSError):  # the descriptor of the listing itself
            if int(file.name) > 2 and str(file.readlink()) != _LINK:
                os.close(int(file.name))


def run(options: WorkerOptions) -> None:
    """Be the worker until the process ends."""
    _close_inherited()
    outbound_errors.reserve()
    # The folder of the rule sets that documents name: see `egressd.planner.registry`.
    os.chdir(options.socket.parent / FOLDER)
    os.umask(0o077)
    logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s", level=logging.INFO)
    _limit_descriptors(options.descriptors)
    if options.trial:
        # If memory is short it is killed first: it serves no client.
        Path("/proc/self/oom_score_adj").write_text(_OOM_SCORE)
    claim(options.socket)
    listener = _listen(options.socket)

    if not options.trial:
        # This process moves bytes: a thread that wakes up waits for its turn, so that more data has
        # arrived by then. With 200 connections at once it takes two thirds of the processor time
        # (sched(7)).
        os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
        # The descriptors stay open until the process ends. netd reports a failure.
        with suppress(OSError):
            answers.divert(options.uid)
            fragments.allow(options.uid)

    privileges.begin_drop(options.uid, options.gid, CAPABILITIES)
    # These load the engine, whose threads inherit the rights dropped above.
    from egressd.netd.engine.server import TrialWork, WorkerServer

    work = None
    if options.trial:
        from egressd.netd.engine.delay import Measurer
        from egressd.netd.engine.serving import Ways

        work = TrialWork(Measurer().measure, Ways())
    server = WorkerServer(work)
    privileges.finish_drop()

    asyncio.run(server.serve(listener))
