"""The console's ASGI application, for every path that is neither the API's nor under ``/ops``."""

from __future__ import annotations

from typing import Final
from urllib.parse import quote

from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from egressd.console.answers import failure
from egressd.console.endpoints import ConsoleEndpoints
from egressd.console.page import Page
from egressd.console.session_auth import SAFE_METHODS, SessionAuthenticator, host_of

PREFIX: Final = "/console/"

HEADERS: Final = {
    # No inline script or style, no other host, no frame: injected markup can do nothing.
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
        "font-src 'self'; connect-src 'self'; manifest-src 'self'; base-uri 'none'; "
        "form-action 'self'; frame-ancestors 'none'"
    ),
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
}
"""Headers of every response. HSTS is not among them: with it, a browser would not let the operator
accept the device's own certificate any more (RFC 6797, 12.1).
"""

FOREIGN_HOST: Final = (
    "this device does not know itself by that name: use its address, or add the name to "
    "`hosts` of the configuration's [console] table"
)
PLAIN_REFUSED: Final = "the console is served over HTTPS only"


class ConsoleApp:
    """The page, and the endpoints under ``/console/``."""

    def __init__(
        self,
        authenticator: SessionAuthenticator,
        endpoints: ConsoleEndpoints,
        page: Page,
        tls_port: int,
    ) -> None:
        self._authenticator = authenticator
        self._endpoints = endpoints
        self._page = page
        self._tls_port = tls_port

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        response = self._refusal(scope)
        if response is None:
            if scope["path"].startswith(PREFIX):
                response = await self._endpoints.response(scope, receive)
            else:
                response = self._page.response(scope)
        if response.status_code >= 400 and scope["method"] not in SAFE_METHODS:
            response.headers["connection"] = "close"  # a body that was not read may follow
        await response(scope, receive, _with_headers(send))

    def _refusal(self, scope: Scope) -> Response | None:
        if not self._authenticator.knows_host(scope):
            return failure(scope, FOREIGN_HOST, 421)
        if self._authenticator.cookie(scope) is not None:
            return None
        if scope["method"] not in SAFE_METHODS:
            # No redirect: the request's content has been sent in clear already.
            return failure(scope, PLAIN_REFUSED, 403)
        port = "" if self._tls_port == 443 else f":{self._tls_port}"
        target = f"https://{host_of(scope)}{port}{quote(scope['path'])}"
        return Response(status_code=308, headers={"location": target})


def _with_headers(send: Send) -> Send:
    extra = [(name.encode(), value.encode()) for name, value in HEADERS.items()]

    async def send_more(message: Message) -> None:
        if message["type"] == "http.response.start":
            message["headers"] = [*message["headers"], *extra]
        await send(message)

    return send_more
