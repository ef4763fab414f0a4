"""Protocols for the storage and services that the console uses. `app` passes implementations in."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager
from typing import Protocol

from egressd.model.console import ChangeRecord, Session


class AccountStore(Protocol):
    """Password and sessions, durable. Every method raises Failed."""

    async def password(self) -> str | None:
        """Return the password's hash; None before a password was chosen."""
        ...

    async def set_password(self, hash_: str, session: Session) -> None:
        """Store a new hash, and `session` as the only remaining session."""
        ...

    async def adopt_password(self, hash_: str) -> None:
        """Store a hash that was made elsewhere, and no session."""
        ...

    async def sessions(self) -> list[Session]:
        """Return all sessions that were not dropped, including expired ones."""
        ...

    async def add_session(self, session: Session) -> None:
        """Store a new session."""
        ...

    async def touch_sessions(self, seen_at: dict[str, int]) -> None:
        """Store the times of the sessions' last use, by key."""
        ...

    async def drop_sessions(self, keys: Iterable[str]) -> None:
        """Forget sessions by key."""
        ...


class SetupCodeStore(Protocol):
    """The single-use code. Every method raises Failed."""

    def code(self) -> str | None:
        """Return the valid code; None if there is none."""
        ...

    def renew(self) -> str:
        """Make a new code and return it."""
        ...

    def used_up(self) -> AbstractContextManager[None]:
        """Make the code invalid; make it valid again if the block fails."""
        ...


class Token(Protocol):
    """The API token. Every method raises Failed."""

    def token(self) -> str:
        """Return the token in force."""
        ...

    def reset(self) -> str:
        """Replace the token and return the new one."""
        ...


class Licenses(Protocol):
    """The device's license."""

    def view(self) -> dict[str, object]:
        """Return the license's part of the settings page, as specified in docs/console-api.md."""
        ...

    def install(self, data: bytes) -> str:
        """Install a license file and return its serial. Raises Invalid with the reason, Failed."""
        ...


class ChangeJournal(Protocol):
    """The record of changes."""

    def note(self, record: ChangeRecord, subject: str) -> None:
        """Queue a record to be added; notify listeners of a change of the kind `subject`."""
        ...
