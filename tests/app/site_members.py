"""Members of a site with its database of texts, all in memory."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable
from pathlib import Path

from egressd.app.shared_access import AccessFollower
from egressd.console.sessions import Sessions
from egressd.model.console import Session
from egressd.service.tokens import Tokens
from egressd.store.postgres.shared_access import SharedText
from egressd.store.sealing import SiteSeal
from tests.support.use_cases import MemoryTokens

SEAL = SiteSeal(bytes(32))
OTHER_SEAL = SiteSeal(hashlib.sha256(b"other").digest())


class Texts:
    """The site's database."""

    def __init__(self) -> None:
        self.rows: dict[str, SharedText] = {}
        self.key_id = SEAL.key_id

    async def versions(self) -> dict[str, int]:
        return {name: row.version for name, row in self.rows.items()}

    async def read(self, names: Collection[str]) -> list[SharedText]:
        return [self.rows[name] for name in names if name in self.rows]

    async def put(self, text: SharedText, *, after: int, key_id: str) -> bool:
        there = self.rows[text.name].version if text.name in self.rows else 0
        if (there, self.key_id) != (after, key_id):
            return False
        self.rows[text.name] = text
        return True

    async def drop(self, names: Collection[str]) -> None:
        for name in names:
            self.rows.pop(name, None)

    async def close(self) -> None:
        pass


class Accounts:
    """A console's store in memory."""

    def __init__(self) -> None:
        self.kept: dict[str, Session] = {}

    async def password(self) -> str | None:
        return None

    async def set_password(self, hash_: str, session: Session) -> None:
        self.kept = {session.key: session}

    async def adopt_password(self, hash_: str) -> None:
        self.kept = {}

    async def sessions(self) -> list[Session]:
        return [*self.kept.values()]

    async def add_session(self, session: Session) -> None:
        self.kept[session.key] = session

    async def touch_sessions(self, seen_at: dict[str, int]) -> None:
        pass

    async def drop_sessions(self, keys: Iterable[str]) -> None:
        for key in keys:
            self.kept.pop(key, None)


class Item:
    """A text in memory."""

    def __init__(self, text: str) -> None:
        self.name = "item"
        self.text = text

    async def read(self) -> str:
        return self.text

    async def write(self, text: str) -> None:
        self.text = text


NO_SESSIONS = Sessions(Accounts(), lambda: 0.0)
NO_TOKENS = Tokens(MemoryTokens(), lambda: 0.0)


class Member:
    """A member with one item."""

    def __init__(self, texts: Texts, folder: Path, text: str = "") -> None:
        self.item = Item(text)
        self.seal = SEAL
        self.now = 1_800_000_000
        self.accounts = Accounts()
        self.token_store = MemoryTokens()
        self._texts, self._folder = texts, folder
        self.restart()

    def restart(self) -> None:
        record = self._folder / "record"
        self._folder.mkdir(exist_ok=True)
        self.sessions = Sessions(self.accounts, lambda: self.now)
        self.tokens = Tokens(self.token_store, lambda: self.now)
        self._follower = AccessFollower(
            self._texts,
            [self.item],
            record,
            lambda: self.seal,
            self.sessions,
            tokens=self.tokens,
        )

    async def log_in(self) -> str:
        """Return the secret of a new session."""
        secret, session = self.sessions.prepare("cookie", "10.77.0.9", "browser")
        await self.sessions.begin(session)
        return secret

    def is_in(self, secret: str) -> bool:
        """True if a request with that secret is let in. It counts as a use."""
        found = self.sessions.find("cookie", secret)
        if found is not None:
            self.sessions.touch(found)
        return found is not None

    async def look(self) -> None:
        await self._follower.look()


async def in_turns(members: Iterable[Member]) -> None:
    for member in [*members] * 2:
        await member.look()
