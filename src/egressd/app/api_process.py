"""The api process: it does all work that needs root's files first, then drops root's privileges.

The order matters. Sockets are bound and directories are made by root; then capabilities are
dropped; then every module and file of the program is loaded, while root's files can still be read;
then the user changes, and only then is anything of the outside world touched.
"""

from __future__ import annotations

import asyncio
import os
import resource
import signal
import socket
import sys
from contextlib import suppress
from pathlib import Path

import structlog
import uvloop

from egressd.api import server
from egressd.app import (
    accounts,
    config,
    heap,
    listening,
    liveness,
    local_socket,
    logs,
    readiness,
    site,
    tls,
    welcome,
)
from egressd.app.api_parts import ApiParts
from egressd.app.background import Background
from egressd.app.events import EventHub
from egressd.app.private_mounts import make_reachable, program_directories
from egressd.app.supervise import when_supervisor_ends
from egressd.console.page import Page
from egressd.model.errors import EgressdError, Failed
from egressd.netd.ipc.client import NetdClient
from egressd.netd.system import privileges
from egressd.store.connection import BadDatabase
from egressd.store.files import prepare_directory
from egressd.store.occupancy import occupied
from egressd.store.preparation import prepare

log = structlog.get_logger()

_HALT_WAIT_S = 10.0
"""Seconds to wait for netd when it has to block every client because the database is bad."""
_PREDECESSOR_S = 20.0
"""Seconds that an earlier api has to finish its requests, or a restore to release the database."""


def main(path: Path | None) -> None:
    """Run until SIGTERM, or until its supervisor is gone."""
    logs.configure("api")
    heap.limit_arenas()
    # The usual soft limit, 1024, is less than the connections that the server may hold.
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    try:
        settings = config.load(path)
        listeners = listening.taken((settings.api.listen, settings.api.tls_listen))
        page = Page()
        _give_up_root(settings)
        uvloop.run(liveness.proved(_serve_alone(settings, listeners, page)))
    except EgressdError as error:
        log.error("api exits after a fatal error", error=str(error))
        sys.exit(1)


def _give_up_root(settings: config.Config) -> None:
    owner = accounts.account(settings.api.user)
    as_root = os.geteuid() == 0
    settings.run.dir.mkdir(mode=0o755, parents=True, exist_ok=True)
    prepare_directory(settings.api_data, (owner.pw_uid, owner.pw_gid) if as_root else None)
    if as_root:
        wanted = (settings.api_data, settings.run.dir, *program_directories())
        make_reachable(wanted, owner.pw_uid, owner.pw_gid)
        privileges.become(owner.pw_uid, owner.pw_gid)
    prepare()


class _Ending:
    """The end of the api, which a signal, its supervisor's end or a fault begins."""

    def __init__(self, hub: EventHub) -> None:
        self.has_begun = asyncio.Event()
        self._hub = hub
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.begin)
        when_supervisor_ends(self.begin)

    def begin(self) -> None:
        self._hub.close()  # otherwise the server would wait for streams that never end
        self.has_begun.set()


async def _serve_alone(settings: config.Config, sockets: list[socket.socket], page: Page) -> None:
    async with occupied(settings.api_data, _PREDECESSOR_S) as is_held:
        if not is_held:
            raise Failed(f"work on {settings.api_data}", "another process does")
        await _serve(settings, sockets, page)


async def _serve(settings: config.Config, sockets: list[socket.socket], page: Page) -> None:
    hub = EventHub()
    ending = _Ending(hub)
    parts = ApiParts(settings, page, hub)
    try:
        await parts.load()
    except BadDatabase as error:
        await _halt(settings, str(error))
        raise
    await parts.open()
    listeners = _listeners(sockets, settings)
    works = Background(ending.begin)
    parts.run(works, certificate=lambda: listeners[-1].tls)
    log.info("api ready", listen=str(settings.api.listen), revision=parts.cases.ledger.revision)
    _started(settings)
    try:
        await server.serve(parts.app, listeners, ending.has_begun, parts.bounds)
    finally:
        readiness.stopping("finishing the requests")
        await parts.close(works)


def _started(settings: config.Config) -> None:
    """Say where the api answers, and free what the start left over."""
    readiness.announce(f"answering at {settings.api.listen} and {settings.api.tls_listen}")
    welcome.show(settings)
    heap.trim()


def _listeners(sockets: list[socket.socket], settings: config.Config) -> list[server.ApiListener]:
    """Return all listeners. Without a usable certificate only HTTPS is shut: the API must stay
    available.
    """
    plain, secure = sockets
    folder = settings.api_data
    try:
        encrypted = server.ApiListener(secure, tls.context(folder, site.names_of(settings)))
    except Failed as error:
        log.error("HTTPS is disabled", error=str(error))
        encrypted = server.ApiListener(secure, is_shut=True)
    return [server.ApiListener(plain), server.ApiListener(local_socket.listen(folder)), encrypted]


async def _halt(settings: config.Config, reason: str) -> None:
    """Have netd block every client: the desired state cannot be read."""
    connected = asyncio.Event()

    async def on_connect() -> None:
        connected.set()

    netd = NetdClient(settings.netd_socket, on_connect=on_connect, on_event=lambda _: None)
    connection = asyncio.create_task(netd.run())
    with suppress(TimeoutError, Failed):
        async with asyncio.timeout(_HALT_WAIT_S):
            await connected.wait()
        await netd.halt(reason)
    connection.cancel()
    with suppress(asyncio.CancelledError):
        await connection
