"""What the console needs of the outside world, as protocols. `app` hands in the real ones."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager
from typing import Protocol

from egressd.model.console import ChangeRecord, Session


class AccountStore(Protocol):
    """Password and sessions, durable. Every method raises Failed."""

    async def password(self) -> str | None:
        """The password's hash; None before one was chosen."""
        ...

    async def set_password(self, hash_: str, session: Session) -> None:
        """Store a new hash, and `session` as the only one that goes on."""
        ...

    async def sessions(self) -> list[Session]:
        """All that were not dropped, expired ones too."""
        ...

    async def add_session(self, session: Session) -> None:
        """Store a new session."""
        ...

    async def touch_sessions(self, seen_at: dict[str, int]) -> None:
        """Note when sessions, by key, were seen."""
        ...

    async def drop_sessions(self, keys: Iterable[str]) -> None:
        """Forget sessions by key."""
        ...


class SetupCode(Protocol):
    """The single-use code. Every method raises Failed."""

    def code(self) -> str | None:
        """The code that counts; None when there is none."""
        ...

    def renew(self) -> str:
        """Make a new one."""
        ...

    def used_up(self) -> AbstractContextManager[None]:
        """Let it count no more, but again when the block fails."""
        ...


class Token(Protocol):
    """The API token. Every method raises Failed."""

    def token(self) -> str:
        """The one in force."""
        ...

    def reset(self) -> str:
        """Replace it; the new one."""
        ...


class Licenses(Protocol):
    """The device's license."""

    def view(self) -> dict[str, object]:
        """What the settings page shows of it, as docs/console-api.md has it."""
        ...

    def install(self, data: bytes) -> str:
        """Install a license file; its serial. Raises Invalid with the reason, Failed."""
        ...


class Journal(Protocol):
    """The record of changes."""

    def note(self, record: ChangeRecord, subject: str) -> None:
        """Add to it, soon; tell listeners that something of the kind `subject` has changed."""
        ...
