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
import time
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import structlog
import uvloop

from egressd.api import server
from egressd.api.app import create_app
from egressd.api.bounds import CallBounds
from egressd.api.gate import Access
from egressd.api.metrics import ChangeMetrics, Counted, of_connections
from egressd.app import (
    accounts,
    config,
    heap,
    last_words,
    listening,
    liveness,
    local_socket,
    logs,
    machine_check,
    readiness,
    site,
    tls,
    update_record,
    welcome,
)
from egressd.app.background import Background
from egressd.app.backup_watch import BackupWatch
from egressd.app.console import ConsoleComponent
from egressd.app.events import EventHub
from egressd.app.lease_files import LeaseFiles
from egressd.app.leaving import Leaving
from egressd.app.news import News
from egressd.app.private_mounts import make_reachable, program_directories
from egressd.app.records import records_in
from egressd.app.resolvers import DeviceResolvers
from egressd.app.supervise import when_supervisor_ends
from egressd.app.surroundings import look_around
from egressd.app.use_cases import UseCases
from egressd.app.vendors import IeeeVendors
from egressd.console.page import Page
from egressd.license.device import this_device
from egressd.license.licensing import LicenseSettings, Licensing
from egressd.model.errors import EgressdError, Failed
from egressd.model.times import utc_text
from egressd.netd.ipc.client import NetdClient
from egressd.netd.system import privileges
from egressd.planner.outbounds import engine
from egressd.service.exits import ExitPolicy
from egressd.service.ports import Configuration
from egressd.store.api_token import ApiToken
from egressd.store.connection import BadDatabase
from egressd.store.console import ConsoleStore
from egressd.store.files import prepare_directory
from egressd.store.occupancy import occupied
from egressd.store.preparation import prepare
from egressd.store.trial_calls import TrialCalls

if TYPE_CHECKING:
    from egressd.service.site_member import SiteMember

log = structlog.get_logger()

_HALT_WAIT_S = 10.0
"""Seconds to wait for netd when it has to block every client because the database is bad."""
_RESOLVERS_S = 10.0
"""Seconds between looks at the device's resolvers."""
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
    store = site.store_of(settings)

    async def resync() -> None:
        await cases.ledger.resync()

    news, leaving = News(hub, lambda: cases), Leaving(settings.api_data)
    bounds, backups, changes = CallBounds(), BackupWatch(settings.data.dir), ChangeMetrics()
    netd = NetdClient(
        settings.netd_socket,
        on_connect=resync,
        on_event=news.on_event,
        on_status=news.on_status,
        why_away=lambda: last_words.read(settings),
        on_devices=news.on_devices,
    )
    member = site.member_of(settings, store, netd.renew_lease, lambda: news.pair_role)
    trial_calls = TrialCalls(settings.api_data)
    licensing = Licensing(
        LicenseSettings(
            mode=settings.license.mode,
            path=settings.license_file,
            public_keys=settings.license.public_keys,
        ),
        device=_device(settings),
        trial_calls=trial_calls,
    )
    console_store = ConsoleStore(settings.api_data)
    resolvers = DeviceResolvers(settings.dns, roles=settings.roles)
    cases = UseCases(
        store,
        netd,
        resolvers=lambda: resolvers.current,
        clock=lambda: utc_text(time.time()),
        licensing=licensing,
        own_ports=settings.own_ports,
        around=lambda: look_around(settings.roles, settings.dns.local),
        records=records_in(settings.api_data, console_store),
        folder=settings.api_data,
        publish=hub.publish,
        notify=news.notify,
        own_problems=lambda: (
            *bounds.problems(),
            *console.problems(),
            *store.problems(),
            *(leaving.problems() if member is None else member.problems()),
            *update_record.problems(settings.data.dir),
            *backups.problems(),
        ),
        timed_backups=backups.seen,
        own_findings=partial(machine_check.of_configuration, settings, is_running=True),
        exit_policy=ExitPolicy(url=settings.exits.url, interval_s=settings.exits.check_interval_s),
        alert_problems=lambda: (
            *console.problems(),
            *store.problems(),
            *(() if member is None else member.problems()),
            *backups.problems(),
            *machine_check.disk_problems(settings),
        ),
        host=socket.gethostname(),
        vendors=IeeeVendors(),
        leases=LeaseFiles(),
        change_took=changes.observe,
        is_standby=lambda: news.pair_role == "standby",
        site=member,
        members=tuple if member is None else member.states,
    )
    services = cases.services
    token = ApiToken(settings.api_data)
    console = ConsoleComponent(
        settings,
        store=console_store,
        page=page,
        token=token,
        licensing=licensing,
        journal=services.journal,
    )
    app = create_app(
        services,
        access=Access(
            token=token.token,
            admission=licensing,
            scoped=services.tokens.find,
            link=services.tokens.find_link,
            session_of=console.authenticator.caller,
        ),
        events=hub.stream,
        latest_events=hub.latest,
        other=console.app,
        engine=engine.version_text(),
        measured=(
            *of_connections(bounds),
            changes,
            Counted("egressd_heals", "Repairs of the kernel's state", "what", news.healed),
            Counted("egressd_engine_restarts", "Parts of the engine that ended", "what", news.lost),
            Counted(
                "egressd_login_failures",
                "Passwords and setup codes that were wrong, or not looked at",
                "outcome",
                console.login_failures,
            ),
        ),
    )
    try:
        await store.open()
        await cases.load()
    except BadDatabase as error:
        await _halt(settings, str(error))
        raise
    token.ensure()
    if settings.license.mode == "enforced":
        trial_calls.open()
    services.backups.tidy()
    await console.open()
    works = Background(ending.begin)
    works.run(netd.run(), "netd client")
    works.run(_follow(resolvers, cases, store), "resolver watch")
    works.run(backups.follow(news.notify), "backup watch")
    cases.run(works)
    access = site.access_of(
        settings,
        accounts=console.accounts,
        sessions=console.sessions,
        token=token,
        tokens=services.tokens,
        serving=lambda: listeners[-1].tls,
    )
    if access is not None:
        works.run(access, "common access")
    _run_membership(works, member, cases, leaving)
    listeners = _listeners(sockets, settings)
    log.info("api ready", listen=str(settings.api.listen), revision=cases.ledger.revision)
    _started(settings)
    try:
        await server.serve(app, listeners, ending.has_begun, bounds)
    finally:
        readiness.stopping("finishing the requests")
        history = services.history
        for part in (cases, console, services.journal, console_store, works, history, store):
            await part.close()


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


def _run_membership(
    works: Background, member: SiteMember | None, cases: UseCases, leaving: Leaving
) -> None:
    """Have this box be a member of its site, or tell a former site that it has left."""
    if member is not None:
        works.run(member.run(cases.ledger), "site membership")
    elif leaving.is_due:
        works.run(leaving.follow(), "leaving the site")


async def _follow(resolvers: DeviceResolvers, cases: UseCases, store: Configuration) -> None:
    """Keep the plan up to date with the device's resolvers, the license's limits on them and a
    site's database that was away, and put the plan in force if a failure has kept it from that.
    """
    told = cases.resolvers()
    while True:
        await asyncio.sleep(_RESOLVERS_S)
        resolvers.refresh()
        wanted = cases.resolvers()
        try:
            if await store.has_returned():
                await cases.ledger.reread()
            if wanted == told and cases.ledger.is_in_force:
                continue
            await cases.ledger.resync()
            told = wanted
        except EgressdError as error:
            log.warning("active plan differs from the stored configuration", error=str(error))


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


def _device(settings: config.Config) -> str:
    """Return the device's id; empty if the machine has none and no license is required. Raises
    Failed.
    """
    try:
        return this_device()
    except Failed:
        if settings.license.mode == "enforced":
            raise
        return ""
