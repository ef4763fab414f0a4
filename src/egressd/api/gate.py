"""The gate: access of each caller, decided before anything else of a request is examined.

Under the API's prefix the order is fixed: token (401), license (403), endpoint (403), and
only then the body. So a caller without the token does not learn which paths there are. Under
``/ops`` three endpoints are open, and rotation links by the key in their path alone. A scoped token
(`service.tokens`) stands for the token where its scopes cover the endpoint. A console session
stands for it everywhere, and needs no license: that is sold for programs.
"""

from __future__ import annotations

import asyncio
import hmac
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol
from urllib.parse import quote

import structlog
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from egressd.api.endpoints import API_ROOT, OPS_PREFIX, EndpointTable, FoundEndpoint
from egressd.api.link_keys import key_of
from egressd.api.link_page import link_refusal
from egressd.api.negotiation import let_ask
from egressd.api.protocol import vouch_for
from egressd.api.refusals import refusal
from egressd.api.throttle import DEBT_MAX_S, Throttle
from egressd.model.errors import EgressdError, Failed
from egressd.model.source import source_of
from egressd.model.tokens import Need
from egressd.model.wording import say

log = structlog.get_logger()

TOKEN_INVALID: Final = "API Token invalid"  # noqa: S105 - an error text, not a secret
TOKEN_UNREADABLE: Final = "the device cannot read its API token: see its log"  # noqa: S105
TRIAL_EXHAUSTED: Final = "API_TRIAL_QUOTA_EXHAUSTED"
NOT_ALLOWED: Final = "API_ENDPOINT_NOT_ALLOWED"

_BEARER: Final = re.compile(rb"bearer +([!-~]+)", re.IGNORECASE)
_SLASHES: Final = re.compile(r"/+")
_CALLER: Final = "egressd.caller"
_UNREAD_MAX: Final = 65_536
"""Bytes of a refused request's body that are let come and thrown away."""


class Admission(Protocol):
    """The license's decision on API calls."""

    def refusal(self) -> str | None:
        """The error text of a call that may not go on, or None when it may."""
        ...

    async def spend(self) -> bool:
        """Count a call that goes on; False when the trial's last was taken meanwhile.

        Raises Failed when the count cannot be stored.
        """
        ...


class Caller(Protocol):
    """A caller that the gate has let in."""

    @property
    def name(self) -> str:
        """The name in the record of changes: ``token``, ``token`` and the name of a scoped one, or
        ``session`` and its id.
        """
        ...

    def may(self, need: Need) -> bool:
        """Return True if it may call an endpoint that needs this."""
        ...

    def is_live(self) -> bool:
        """Return True if the gate would still let it in; open streams check it repeatedly."""
        ...


class LinkCaller(Caller, Protocol):
    """A caller with the key of a rotation link, which may do nothing else."""

    @property
    def id(self) -> str:
        """The id of its token."""
        ...

    @property
    def rotates(self) -> str:
        """The target of the link, as rules name it."""
        ...


@dataclass(frozen=True, kw_only=True)
class Access:
    """The grounds on which the gate lets callers in."""

    token: Callable[[], str]
    """The token in force. May raise Failed; then no caller gets in with one."""
    admission: Admission
    scoped: Callable[[bytes], Caller | None] = lambda sent: None
    """The caller that bears a scoped token, if it is one that counts."""
    link: Callable[[bytes], LinkCaller | None] = lambda key: None
    """The caller of a rotation link by its key, if that is one that counts."""
    session_of: Callable[[Scope], Caller | None] = lambda scope: None
    """The console session that a request is of, if it is of one."""


@dataclass(frozen=True)
class _Bearer:
    """A caller with the token."""

    sent: bytes
    access: Access
    name: str = "token"

    def may(self, need: Need) -> bool:
        """Return True: the device's own token opens everything."""
        return True

    def is_live(self) -> bool:
        """Return True if the token is still the one in force."""
        try:
            return hmac.compare_digest(self.sent, self.access.token().encode())
        except EgressdError:
            return False


def caller_of(scope: Scope) -> Caller:
    """Return the caller that the gate let in with this request."""
    caller: Caller = scope[_CALLER]
    return caller


def link_of(scope: Scope) -> LinkCaller:
    """Return the caller of the rotation link that the gate let in with this request."""
    caller: LinkCaller = scope[_CALLER]
    return caller


def hides_secrets(scope: Scope) -> bool:
    """Return True if passwords and the like are masked in the answer to this request: its caller
    may not use them to change anything.
    """
    return not caller_of(scope).may("write")


class Gate:
    """ASGI middleware. What lies under neither prefix goes to `other`."""

    def __init__(
        self, app: ASGIApp, *, access: Access, endpoints: EndpointTable, other: ASGIApp
    ) -> None:
        self._app = app
        self._access = access
        self._endpoints = endpoints
        self._other = other
        self._throttle = Throttle()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let the request through, or answer it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)  # start and end; a web socket finds no route
            return
        # Read as generously as any server could: what might be taken for ours is held to be.
        path = _SLASHES.sub("/", scope["path"]) + "/"
        if path.startswith(API_ROOT + "/"):
            refused = await self._refuse_api_call(scope)
        elif path.startswith(OPS_PREFIX + "/"):
            let_ask(scope)
            refused = await self._refuse_operator(scope)
        else:
            await self._other(scope, receive, send)
            return
        if refused is None:
            await self._app(scope, receive, send)
            return
        if _brings_much(scope):
            refused.headers["connection"] = "close"
        await refused(scope, receive, send)

    async def _refuse_api_call(self, scope: Scope) -> Response | None:
        if self._admit_session(scope):
            found = self._endpoints.find(scope["method"], raw_path(scope))
            if found is None:
                return refusal(scope, NOT_ALLOWED, 403)
            found.put(scope)
            return None
        refused = await self._refuse_bearer(scope)
        if refused is not None:
            return refused
        text = self._access.admission.refusal()
        if text is not None:
            return refusal(scope, text, 403)
        found = self._endpoints.find(scope["method"], raw_path(scope))
        if found is None or not caller_of(scope).may(found.endpoint.need):
            return refusal(scope, NOT_ALLOWED, 403)
        refused = await self._spend(scope)
        if refused is None:
            found.put(scope)
        return refused

    async def _spend(self, scope: Scope) -> Response | None:
        """Count a call that goes on by the license; the answer if it may not."""
        try:
            if not await self._access.admission.spend():
                return refusal(scope, TRIAL_EXHAUSTED, 403)
        except Failed as error:
            return refusal(scope, str(error), 500)
        return None

    async def _refuse_operator(self, scope: Scope) -> Response | None:
        found = self._endpoints.find(scope["method"], raw_path(scope))
        if found is not None and found.endpoint.is_by_key:
            return await self._refuse_link(scope, found)
        is_open = found is not None and found.endpoint.is_open
        is_session = not is_open and self._admit_session(scope)
        if not is_open and not is_session:
            refused = await self._refuse_bearer(scope)
            if refused is not None:
                return refused
        if found is None:
            return refusal(scope, "there is no such endpoint", 404)
        is_sold = found.endpoint.is_licensed and not is_session
        if is_sold and (text := self._access.admission.refusal()) is not None:
            return refusal(scope, text, 403)
        if not is_open and not caller_of(scope).may(found.endpoint.need):
            return refusal(scope, NOT_ALLOWED, 403)
        refused = await self._spend(scope) if is_sold else None
        if refused is None:
            found.put(scope)
        return refused

    async def _refuse_link(self, scope: Scope, found: FoundEndpoint) -> Response | None:
        """The answer to a request whose path has no key that counts, in due time; else None."""
        key = key_of(scope)
        caller = self._access.link(key)
        if caller is None:
            again_s = await self._delay_guess(scope, "wrong key of a rotation link")
            response = link_refusal(scope, say("no-such-link"), 429 if again_s else 404)
            if again_s:
                response.headers["retry-after"] = str(again_s)
            return response
        scope[_CALLER] = caller
        vouch_for(scope)
        parameters = {**found.parameters, "key": key.decode()}
        found._replace(parameters=parameters).put(scope)
        return None

    def _admit_session(self, scope: Scope) -> bool:
        caller = self._access.session_of(scope)
        scope[_CALLER] = caller
        if caller is None:
            return False
        vouch_for(scope)
        let_ask(scope)
        return True

    async def _refuse_bearer(self, scope: Scope) -> Response | None:
        """The answer to a request that does not bear a token, in due time; else None."""
        sent = _bearer_token(scope)
        if sent is None:
            return _unauthorized(scope)
        scoped = self._access.scoped(sent)
        if scoped is not None:
            scope[_CALLER] = scoped
            vouch_for(scope)
            return None
        try:
            expected = self._access.token().encode()
        except EgressdError as error:
            # Not 401, by which a caller with the right one would take it for reset.
            log.error("API tokens cannot be checked", reason=str(error))
            return refusal(scope, TOKEN_UNREADABLE, 500)
        if expected and hmac.compare_digest(sent, expected):
            scope[_CALLER] = _Bearer(sent, self._access)
            vouch_for(scope)
            return None
        return _unauthorized(scope, await self._delay_guess(scope, "wrong API token"))

    async def _delay_guess(self, scope: Scope, what: str) -> int:
        """Wait as long as the answer to a wrong secret, `what` in the log, has to. Return 0. If too
        many answers wait, return at once the seconds after which its sender may try again.
        """
        source = source_of((scope.get("client") or ("local",))[0])
        now = asyncio.get_running_loop().time()
        if not self._throttle.may_wait(source, now):
            return int(DEBT_MAX_S)
        delay = self._throttle.wrong(source, now)
        if delay:
            await asyncio.sleep(delay)
        else:
            log.warning(what, source=source.address)
        return 0


def raw_path(scope: Scope) -> bytes:
    """The path as it was sent."""
    raw: bytes | None = scope.get("raw_path")
    return quote(scope["path"]).encode() if raw is None else raw


def _bearer_token(scope: Scope) -> bytes | None:
    """The token of the one ``Authorization: Bearer`` header (RFC 6750, 2.1)."""
    sent = [value for name, value in scope["headers"] if name == b"authorization"]
    match = _BEARER.fullmatch(sent[0]) if len(sent) == 1 else None
    return match.group(1) if match else None


def _unauthorized(scope: Scope, retry_after_s: int = 0) -> Response:
    response = refusal(scope, TOKEN_INVALID, 401)
    response.headers["www-authenticate"] = "Bearer"
    if retry_after_s:
        response.headers["retry-after"] = str(retry_after_s)
    return response


def _brings_much(scope: Scope) -> bool:
    """Return True if a refused request has a body too large to wait for."""
    headers = dict(scope["headers"])
    length = headers.get(b"content-length", b"0")
    return b"transfer-encoding" in headers or not length.isdigit() or int(length) > _UNREAD_MAX
