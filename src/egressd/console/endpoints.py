"""The endpoints under ``/console/``: session, password, API settings. See docs/console-api.md."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, Final

import msgspec
import structlog
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope

from egressd.console import devices
from egressd.console.access_settings import AccessSettings
from egressd.console.accounts import Accounts, Denied, Login, TooSoon, Visitor
from egressd.console.answers import failure, json_body, reply
from egressd.console.ports import ChangeJournal
from egressd.console.session_auth import (
    SECURE_COOKIE,
    SessionAuthenticator,
    cookie_value,
    header,
    is_own_page,
    source_of,
)
from egressd.console.sessions import ABSOLUTE_S, Sessions
from egressd.model.console import ChangeRecord, Session
from egressd.model.errors import EgressdError, Failed, Invalid
from egressd.model.faults import fault
from egressd.model.times import utc_text
from egressd.model.wording import Sentence, coded, say

log = structlog.get_logger()

FORGED: Final = "this request does not come from the console's page"
LOGIN_FIRST: Final = "log in first"
_SESSION: Final = "/console/sessions/"


class _Setup(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    code: str
    password: str


class _Login(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    password: str


class _NewPassword(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    current: str
    password: str


class _Nothing(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    pass


class ConsoleEndpoints:
    """Answers the requests under ``/console/``."""

    def __init__(
        self,
        *,
        authenticator: SessionAuthenticator,
        accounts: Accounts,
        sessions: Sessions,
        access_settings: AccessSettings,
        journal: ChangeJournal,
        about: dict[str, str],
    ) -> None:
        """`about`: the public facts of the device: ``version`` and ``hostname``."""
        self._authenticator = authenticator
        self._accounts = accounts
        self._sessions = sessions
        self._access_settings = access_settings
        self._journal = journal
        self._about = about
        self._for_all: dict[tuple[str, str], Callable[[Request], Awaitable[Response]]] = {
            ("GET", "/console/session"): self._show_session,
            ("POST", "/console/setup"): self._set_up,
            ("POST", "/console/login"): self._log_in,
        }
        self._for_sessions: dict[
            tuple[str, str], Callable[[Request, Session], Awaitable[Response]]
        ] = {
            ("POST", "/console/logout"): self._log_out,
            ("PUT", "/console/password"): self._change_password,
            ("GET", "/console/sessions"): self._list_sessions,
            ("DELETE", "/console/sessions"): self._end_other_sessions,
            ("GET", "/console/access"): self._show_access,
            ("POST", "/console/token/reveal"): self._reveal_token,
            ("POST", "/console/token/reset"): self._reset_token,
            ("PUT", "/console/license"): self._install_license,
        }

    async def response(self, scope: Scope, receive: Receive) -> Response:
        """Return the response to a request."""
        request = Request(scope, receive)
        try:
            return await self._route(request)
        except Invalid as error:
            return failure(scope, str(error), 400, error.faults)
        except Denied as error:
            return failure(scope, str(error), 403, error.faults)
        except TooSoon as error:
            wait = error.retry_after
            response = failure(scope, str(error), 429, error.faults, retry_after=wait)
            response.headers["retry-after"] = str(wait)
            return response
        except EgressdError as error:
            return failure(scope, str(error), 500)

    async def _route(self, request: Request) -> Response:
        if not is_own_page(request.scope):
            return failure(request.scope, FORGED, 403)
        called = request.method, request.scope["path"]
        if open_handler := self._for_all.get(called):
            return await open_handler(request)
        caller = self._authenticator.caller(request.scope)
        if caller is None:
            return failure(request.scope, LOGIN_FIRST, 401)
        if handler := self._for_sessions.get(called):
            return await handler(request, caller.session)
        if request.method == "DELETE" and called[1].startswith(_SESSION):
            return await self._end_session(request, caller.session)
        return failure(request.scope, "there is no such endpoint", 404)

    # --- Without a session. ------------------------------------------------------------

    async def _show_session(self, request: Request) -> Response:
        caller = self._authenticator.caller(request.scope)
        state = "open" if caller else "setup" if self._accounts.awaits_setup() else "login"
        shown = self._shown(caller.session, caller.session) if caller else None
        has_password = caller is not None or await self._accounts.has_password()
        return reply(
            {"state": state, "has_password": has_password, **self._about, "session": shown}
        )

    async def _set_up(self, request: Request) -> Response:
        body = await json_body(request, _Setup)
        visitor = self._visitor(request)
        login = await self._accounts.set_up(visitor, body.code, body.password)
        return self._welcome(request, visitor, say("password-chosen"), login)

    async def _log_in(self, request: Request) -> Response:
        body = await json_body(request, _Login)
        visitor = self._visitor(request)
        login = await self._accounts.log_in(visitor, body.password)
        if old := self._authenticator.caller(request.scope):
            # if this fails, only the browser's own old session comes back after a restart
            with suppress(Failed):
                await self._sessions.end([old.session])
        return self._welcome(request, visitor, say("logged-in"), login)

    # --- With a session. ---------------------------------------------------------------

    async def _log_out(self, request: Request, session: Session) -> Response:
        await json_body(request, _Nothing)
        await self._sessions.end([session])
        response = self._said(request, session, say("logged-out"))
        self._set_cookie(response, self._visitor(request).cookie, "", 0)
        return response

    async def _change_password(self, request: Request, session: Session) -> Response:
        body = await json_body(request, _NewPassword)
        visitor = self._visitor(request)
        login = await self._accounts.change_password(visitor, body.current, body.password)
        text = say("password-changed")
        return self._welcome(request, visitor, text, login)

    async def _list_sessions(self, _: Request, session: Session) -> Response:
        return reply({"data": [self._shown(s, session) for s in self._sessions.current()]})

    async def _end_session(self, request: Request, session: Session) -> Response:
        wanted = request.scope["path"].removeprefix(_SESSION)
        found = [s for s in self._sessions.current() if s.id == wanted]
        if not found:
            gone = fault("", "no-such-session")
            return failure(request.scope, str(gone), 404, [gone])
        await self._sessions.end(found)
        return self._said(request, session, say("session-ended", id=wanted))

    async def _end_other_sessions(self, request: Request, session: Session) -> Response:
        others = [s for s in self._sessions.current() if s.key != session.key]
        await self._sessions.end(others)
        text = say("sessions-ended", n=len(others))
        return self._said(request, session, text, deleted=len(others))

    async def _show_access(self, _: Request, __: Session) -> Response:
        return reply(self._access_settings.view())

    async def _reveal_token(self, request: Request, session: Session) -> Response:
        await json_body(request, _Nothing)
        self._note(request, session, say("token-shown"))
        return reply({"token": self._access_settings.token()})

    async def _reset_token(self, request: Request, session: Session) -> Response:
        await json_body(request, _Nothing)
        token = self._access_settings.reset_token()
        text = say("token-reset")
        return self._said(request, session, text, token=token)

    async def _install_license(self, request: Request, session: Session) -> Response:
        return self._said(request, session, await self._access_settings.install_license(request))

    # --- Helpers. ----------------------------------------------------------------------

    def _visitor(self, request: Request) -> Visitor:
        cookie = self._authenticator.cookie(request.scope)
        if cookie is None:
            raise Failed("begin a session", "there is no console by this way")
        caller = self._authenticator.caller(request.scope)
        return Visitor(
            source=source_of(request.scope),
            agent=header(request.scope, b"user-agent") or "",
            cookie=cookie,
            device=cookie_value(request.scope, devices.cookie_of(cookie)) or "",
            session=caller.session.id if caller else "",
        )

    def _welcome(
        self, request: Request, visitor: Visitor, text: Sentence, login: Login
    ) -> Response:
        log.info("console session started", session=login.session.id, source=visitor.source)
        response = self._said(request, login.session, text)
        self._set_cookie(response, visitor.cookie, login.secret, ABSOLUTE_S)
        self._set_cookie(response, devices.cookie_of(visitor.cookie), login.device, devices.KEPT_S)
        return response

    def _set_cookie(self, response: Response, name: str, value: str, max_age: int) -> None:
        response.set_cookie(
            name,
            value,
            max_age=max_age,
            path="/",
            secure=name.startswith(SECURE_COOKIE),
            httponly=True,
            samesite="strict",
        )

    def _said(self, request: Request, session: Session, text: Sentence, **more: Any) -> Response:
        self._note(request, session, text)
        return reply({"msg": text, "msg_coded": coded(text), **more})

    def _note(self, request: Request, session: Session, text: Sentence) -> None:
        self._journal.note(
            ChangeRecord(
                at=utc_text(time.time()),
                who=f"session {session.id}",
                source=source_of(request.scope),
                what=f"{request.method} {request.scope['path'][:200]}",
                text=text,
            ),
            "console",
        )

    def _shown(self, session: Session, current: Session) -> dict[str, object]:
        return {
            "id": session.id,
            "is_current": session.key == current.key,
            "source": session.source,
            "agent": session.agent,
            "created_at": utc_text(session.created_at),
            "seen_at": utc_text(session.seen_at),
            "expires_at": utc_text(self._sessions.expires_at(session)),
        }
