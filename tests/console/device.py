"""The console in process: the real store and gate, a clock that tests set, browsers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
from starlette.responses import PlainTextResponse
from starlette.types import Receive, Scope, Send

from egressd.console.access_settings import AccessSettings
from egressd.console.accounts import Accounts
from egressd.console.app import ConsoleApp
from egressd.console.endpoints import ConsoleEndpoints
from egressd.console.page import Page
from egressd.console.session_auth import SessionAuthenticator
from egressd.console.sessions import Sessions
from egressd.console.throttle import GuessThrottle
from egressd.model.console import ChangeRecord
from egressd.model.errors import Invalid
from egressd.store.api_token import ApiToken
from egressd.store.console import ConsoleStore
from egressd.store.database import Database
from egressd.store.setup_code import SetupCode

HOST = "192.168.8.1:8788"
ORIGIN = f"https://{HOST}"
PASSWORD = "correct horse battery"
OWN = {"x-egressd-console": "1", "origin": ORIGIN}


class Licenses:
    """A license view that takes one file."""

    def view(self) -> dict[str, object]:
        return {"device": "d", "mode": "off", "api": "open", "license": None}

    def install(self, data: bytes) -> str:
        if data != b"a license":
            raise Invalid("the license is not installed: it is none")
        return "42"


class Journal:
    """The record of changes, in memory."""

    def __init__(self) -> None:
        self.records: list[ChangeRecord] = []
        self.subjects: set[str] = set()

    def note(self, record: ChangeRecord, subject: str) -> None:
        self.records.append(record)
        self.subjects.add(subject)


class Device:
    """A device that serves its console; `start` after a restart too."""

    def __init__(self, folder: Path, *, insecure: bool = False) -> None:
        self.folder = folder
        self.is_stopped = False
        self.now = 1_800_000_000.0
        self.code = SetupCode(folder)
        self.token = ApiToken(folder)
        self.store = ConsoleStore(folder)
        self.journal = Journal()
        self.sessions = Sessions(self.store, lambda: self.now)
        accounts = Accounts(self.store, self.code, self.sessions, GuessThrottle(lambda: self.now))
        self.accounts = accounts
        self.authenticator = SessionAuthenticator(
            self.sessions, ("gateway", "Router.Example"), insecure=insecure
        )
        endpoints = ConsoleEndpoints(
            authenticator=self.authenticator,
            accounts=accounts,
            sessions=self.sessions,
            access_settings=AccessSettings(self.token, Licenses(), {"plain_port": 8787}),
            journal=self.journal,
            about={"version": "1", "hostname": "gateway"},
        )
        self.console = ConsoleApp(self.authenticator, endpoints, Page(folder / "page"), 8788)

    async def start(self) -> None:
        database = Database(self.folder)
        await database.open()
        await database.close()
        self.token.ensure()
        await self.accounts.open()

    async def stop(self) -> None:
        if not self.is_stopped:
            await self.sessions.close()
            await self.store.close()
        self.is_stopped = True

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The console, and beside it a path that only sessions get to, as the gate has it."""
        if scope["path"] == "/svc":
            status = 401 if self.authenticator.caller(scope) is None else 200
            await PlainTextResponse("", status)(scope, receive, send)
        else:
            await self.console(scope, receive, send)

    def browser(self, source: str = "192.168.8.5", base: str = ORIGIN) -> Browser:
        return Browser(self, source, base)


class Browser:
    """Keeps cookies, and says what browsers say of a page's own requests."""

    def __init__(self, device: Device, source: str, base: str) -> None:
        transport = httpx.ASGITransport(device, client=(source, 40000))
        self.http = httpx.AsyncClient(transport=transport, base_url=base)
        self.own = {"x-egressd-console": "1", "origin": base}

    async def get(self, path: str, **headers: str) -> httpx.Response:
        return await self.http.get(
            path, headers={k.replace("_", "-"): v for k, v in headers.items()}
        )

    async def send(
        self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None
    ) -> httpx.Response:
        return await self.http.request(
            method, path, json={} if body is None else body, headers=self.own | (headers or {})
        )

    async def log_in(self, password: str = PASSWORD) -> httpx.Response:
        return await self.send("POST", "/console/login", {"password": password})

    async def state(self) -> str:
        state: str = (await self.get("/console/session")).json()["state"]
        return state
