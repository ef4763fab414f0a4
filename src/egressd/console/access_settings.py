"""The API settings page: the token, the state of API access, the license."""

from __future__ import annotations

import asyncio
from typing import Final

from starlette.requests import Request

from egressd.console.answers import body
from egressd.console.ports import Licenses, Token
from egressd.model.wording import Sentence, say

LICENSE_MAX: Final = 64 * 1024
_SHOWN: Final = 4
"""Characters of a masked token that are shown, to distinguish tokens."""


class AccessSettings:
    """Shows and changes the settings of access to the API."""

    def __init__(self, token: Token, licenses: Licenses, listeners: dict[str, object]) -> None:
        """`listeners`: the addresses of the API: ``api_prefix``, ``plain_port``, ``tls_port``."""
        self._token = token
        self._licenses = licenses
        self._listeners = listeners

    def view(self) -> dict[str, object]:
        """Return all settings, with the token masked. Raises Failed."""
        masked = f"{self._token.token()[:_SHOWN]}…"
        return {"token": masked, **self._listeners, **self._licenses.view()}

    def token(self) -> str:
        """Return the token in clear. Raises Failed."""
        return self._token.token()

    def reset_token(self) -> str:
        """Replace the token and return the new one. Raises Failed."""
        return self._token.reset()

    async def install_license(self, request: Request) -> Sentence:
        """Install the uploaded license and return a message for the user. Raises
        Invalid, Failed.
        """
        data = await body(request, "application/octet-stream", LICENSE_MAX)
        serial = await asyncio.to_thread(self._licenses.install, data)
        return say("license-installed", serial=serial)
