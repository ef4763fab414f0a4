"""The parts of the api process and how they are joined: store, netd's client, use cases, console,
and the application that answers requests.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from functools import partial
from ssl import SSLContext

from starlette.types import ASGIApp

from egressd.api.app import create_app
from egressd.api.bounds import CallBounds
from egressd.api.gate import Access
from egressd.api.metrics import ChangeMetrics, Counted, of_connections
from egressd.app import config, last_words, machine_check, site, update_record
from egressd.app.background import Background
from egressd.app.backup_watch import BackupWatch
from egressd.app.console import ConsoleComponent
from egressd.app.events import EventHub
from egressd.app.lease_files import LeaseFiles
from egressd.app.leaving import Leaving
from egressd.app.news import News
from egressd.app.plan_keeper import keep_plan
from egressd.app.records import records_in
from egressd.app.resolvers import DeviceResolvers
from egressd.app.surroundings import look_around
from egressd.app.use_cases import UseCases
from egressd.app.vendors import IeeeVendors
from egressd.console.page import Page
from egressd.license.device import this_device
from egressd.license.licensing import LicenseSettings, Licensing
from egressd.model.errors import Failed
from egressd.model.times import utc_text
from egressd.model.wording import Sentence
from egressd.netd.ipc.client import NetdClient
from egressd.planner.outbounds import engine
from egressd.service.exits import ExitPolicy
from egressd.store.api_token import ApiToken
from egressd.store.console import ConsoleStore
from egressd.store.trial_calls import TrialCalls


class ApiParts:
    """The parts, each made once: `load` and `open` first, then `run`, at last `close`."""

    def __init__(self, settings: config.Config, page: Page, hub: EventHub) -> None:
        self._settings = settings
        self._hub = hub
        self.bounds = CallBounds()
        self._store = site.store_of(settings)
        self._news = News(hub, lambda: self.cases)
        self._leaving = Leaving(settings.api_data)
        self._backups = BackupWatch(settings.data.dir)
        self._changes = ChangeMetrics()
        self._netd = self._netd_client()
        self._member = site.member_of(
            settings, self._store, self._netd.renew_lease, lambda: self._news.pair_role
        )
        self._trial_calls = TrialCalls(settings.api_data)
        self._licensing = self._limits()
        self._console_store = ConsoleStore(settings.api_data)
        self._resolvers = DeviceResolvers(settings.dns, roles=settings.roles)
        self.cases = self._use_cases()
        self._token = ApiToken(settings.api_data)
        self._console = ConsoleComponent(
            settings,
            store=self._console_store,
            page=page,
            token=self._token,
            licensing=self._licensing,
            journal=self.cases.services.journal,
        )
        self.app = self._application()

    async def load(self) -> None:
        """Read the configuration. Raises BadDatabase if it cannot be read."""
        await self._store.open()
        await self.cases.load()

    async def open(self) -> None:
        """Open all else that is stored."""
        self._token.ensure()
        if self._settings.license.mode == "enforced":
            self._trial_calls.open()
        self.cases.services.backups.tidy()
        await self._console.open()

    def run(self, works: Background, *, certificate: Callable[[], SSLContext | None]) -> None:
        """Begin all that is done in the background. `certificate` returns what HTTPS uses."""
        works.run(self._netd.run(), "netd client")
        works.run(keep_plan(self._resolvers, self.cases, self._store), "resolver watch")
        works.run(self._backups.follow(self._news.notify), "backup watch")
        self.cases.run(works)
        access = site.access_of(
            self._settings,
            accounts=self._console.accounts,
            sessions=self._console.sessions,
            token=self._token,
            tokens=self.cases.services.tokens,
            serving=certificate,
        )
        if access is not None:
            works.run(access, "common access")
        if self._member is not None:
            works.run(self._member.run(self.cases.ledger), "site membership")
        elif self._leaving.is_due:
            works.run(self._leaving.follow(), "leaving the site")

    async def close(self, works: Background) -> None:
        """End all of it, `works` included, and store what is not stored yet."""
        journal, history = self.cases.services.journal, self.cases.services.history
        for part in (
            self.cases,
            self._console,
            journal,
            self._console_store,
            works,
            history,
            self._store,
        ):
            await part.close()

    def _netd_client(self) -> NetdClient:
        async def resync() -> None:
            await self.cases.ledger.resync()

        news = self._news
        return NetdClient(
            self._settings.netd_socket,
            on_connect=resync,
            on_event=news.on_event,
            on_status=news.on_status,
            why_away=lambda: last_words.read(self._settings),
            on_devices=news.on_devices,
        )

    def _limits(self) -> Licensing:
        license_ = self._settings.license
        return Licensing(
            LicenseSettings(
                mode=license_.mode,
                path=self._settings.license_file,
                public_keys=license_.public_keys,
            ),
            device=_device(self._settings),
            trial_calls=self._trial_calls,
        )

    def _use_cases(self) -> UseCases:
        settings, member, news = self._settings, self._member, self._news
        return UseCases(
            self._store,
            self._netd,
            resolvers=lambda: self._resolvers.current,
            clock=lambda: utc_text(time.time()),
            licensing=self._licensing,
            own_ports=settings.own_ports,
            around=lambda: look_around(settings.roles, settings.dns.local),
            records=records_in(settings.api_data, self._console_store),
            folder=settings.api_data,
            publish=self._hub.publish,
            notify=news.notify,
            own_problems=self._problems,
            timed_backups=self._backups.seen,
            own_findings=partial(machine_check.of_configuration, settings, is_running=True),
            exit_policy=ExitPolicy(
                url=settings.exits.url, interval_s=settings.exits.check_interval_s
            ),
            alert_problems=self._alerted,
            host=socket.gethostname(),
            vendors=IeeeVendors(),
            leases=LeaseFiles(),
            change_took=self._changes.observe,
            is_standby=lambda: news.pair_role == "standby",
            site=member,
            members=tuple if member is None else member.states,
        )

    def _problems(self) -> Iterator[Sentence]:
        """Yield what is wrong in this process, for the overview."""
        yield from self.bounds.problems()
        yield from self._console.problems()
        yield from self._store.problems()
        yield from (self._leaving if self._member is None else self._member).problems()
        yield from update_record.problems(self._settings.data.dir)
        yield from self._backups.problems()

    def _alerted(self) -> Iterator[Sentence]:
        """Yield what is wrong in this process and lasts, so that an alert is worth its while."""
        yield from self._console.problems()
        yield from self._store.problems()
        if self._member is not None:
            yield from self._member.problems()
        yield from self._backups.problems()
        yield from machine_check.disk_problems(self._settings)

    def _application(self) -> ASGIApp:
        services, news, console = self.cases.services, self._news, self._console
        return create_app(
            services,
            access=Access(
                token=self._token.token,
                admission=self._licensing,
                scoped=services.tokens.find,
                link=services.tokens.find_link,
                session_of=console.authenticator.caller,
            ),
            events=self._hub.stream,
            latest_events=self._hub.latest,
            other=console.app,
            engine=engine.version_text(),
            measured=(
                *of_connections(self.bounds),
                self._changes,
                Counted("egressd_heals", "Repairs of the kernel's state", "what", news.healed),
                Counted(
                    "egressd_engine_restarts", "Parts of the engine that ended", "what", news.lost
                ),
                Counted(
                    "egressd_login_failures",
                    "Passwords and setup codes that were wrong, or not looked at",
                    "outcome",
                    console.login_failures,
                ),
            ),
        )


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
