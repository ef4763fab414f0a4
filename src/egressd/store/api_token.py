"""The token that clients of the HTTP API bear.

It is a file of its own, and the api reads it at each request: open, read and close of one line in
the page cache take about 15 µs. So a token that another process has just reset counts at the next
request, without a notification or an invalidation; root can reset it without opening a database
that belongs to another user; and restoring a backup does not bring back a token that was reset
because it had leaked.
"""

from __future__ import annotations

import secrets
from pathlib import Path

from egressd.model.errors import Failed
from egressd.store.files import replace_durably

_TOKEN_BYTES = 32


class ApiToken:
    """The token file in the data directory: mode 0600, replaced whole."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / "token"

    def ensure(self) -> None:
        """Create a token unless one exists. Called at start. Raises Failed."""
        if not self._path.exists():
            self.reset()

    def token(self) -> str:
        """Return the token in force at this moment. Raises Failed if none can be read."""
        try:
            text = self._path.read_bytes().decode().strip()
        except (OSError, ValueError) as error:
            raise Failed("read the API token", str(error)) from error
        if not text:
            raise Failed("read the API token", f"{self._path} is empty")
        return text

    def reset(self) -> str:
        """Replace the token by a new one of 256 random bits, which is durable and counts at once.

        Raises Failed; then the old one counts.
        """
        fresh = secrets.token_urlsafe(_TOKEN_BYTES)
        self.replace(fresh)
        return fresh

    def replace(self, token: str) -> None:
        """Put another token in place of this one, as `reset` does. Raises Failed."""
        try:
            replace_durably(self._path, token.encode() + b"\n")
        except OSError as error:
            raise Failed("write the API token", str(error)) from error
