"""The console, wired with its dependencies."""

from __future__ import annotations

import socket
import time

import msgspec

from egressd import __version__
from egressd.api.endpoints import API_PREFIX
from egressd.app.config import Config
from egressd.console.access_settings import AccessSettings
from egressd.console.accounts import Accounts
from egressd.console.app import ConsoleApp
from egressd.console.endpoints import ConsoleEndpoints
from egressd.console.page import Page
from egressd.console.ports import ChangeJournal
from egressd.console.session_auth import SessionAuthenticator
from egressd.console.sessions import Sessions
from egressd.console.throttle import GuessThrottle
from egressd.license.licensing import Licensing
from egressd.model.wording import Sentence
from egressd.store.api_token import ApiToken
from egressd.store.console import ConsoleStore
from egressd.store.setup_code import SetupCode


class LicenseView:
    """The license, as the console shows and installs it."""

    def __init__(self, licensing: Licensing) -> None:
        self._licensing = licensing

    def view(self) -> dict[str, object]:
        """Return the fields of the license as docs/console-api.md lists them."""
        grants, finding = self._licensing.grants(), self._licensing.finding()
        access, left = self._licensing.access()
        return {
            "device": self._licensing.device,
            "mode": self._licensing.mode,
            "api": access.value,
            "trial_calls": grants.api_trial_calls,
            "trial_calls_left": left,
            "proxy_service_quota": grants.proxy_service_quota,
            "license": None if finding.license is None else msgspec.to_builtins(finding.license),
            "license_problem": finding.reason,
        }

    def install(self, data: bytes) -> str:
        """Install a license file, and return its serial. Raises Invalid with the reason, Failed."""
        return self._licensing.install(data)


class ConsoleComponent:
    """The console's application, and the start and the end of its parts."""

    def __init__(
        self,
        settings: Config,
        *,
        store: ConsoleStore,
        page: Page,
        token: ApiToken,
        licensing: Licensing,
        journal: ChangeJournal,
    ) -> None:
        self.sessions = Sessions(store, time.time)
        throttle = GuessThrottle(time.monotonic)
        self.login_failures = throttle.failures
        """Outcome -> the number of passwords and setup codes that were not accepted."""
        self.accounts = Accounts(store, SetupCode(settings.api_data), self.sessions, throttle)
        hostname = socket.gethostname()
        self.authenticator = SessionAuthenticator(
            self.sessions,
            (hostname, f"{hostname}.local", *settings.console.hosts),
            insecure=settings.console.insecure,
        )
        tls_port = settings.api.tls_listen.port
        listeners: dict[str, object] = {
            "api_prefix": API_PREFIX,
            "plain_port": settings.api.listen.port,
            "tls_port": tls_port,
        }
        endpoints = ConsoleEndpoints(
            authenticator=self.authenticator,
            accounts=self.accounts,
            sessions=self.sessions,
            access_settings=AccessSettings(token, LicenseView(licensing), listeners),
            journal=journal,
            about={"version": __version__, "hostname": hostname},
        )
        self.app = ConsoleApp(self.authenticator, endpoints, page, tls_port)

    async def open(self) -> None:
        """Read the sessions; make a setup code if there is no password to log in with. Raises
        Failed.
        """
        await self.accounts.open()

    def problems(self) -> list[Sentence]:
        """Return a sentence for each problem of the console."""
        return self.accounts.problems()

    async def close(self) -> None:
        """Wait until pending changes are stored."""
        await self.sessions.close()
