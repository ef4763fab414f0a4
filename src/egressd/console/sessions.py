"""Login sessions: they begin, are found by their secret, expire and are ended.

The secret has 256 random bits and is made at login, never taken from a request: an attacker cannot
make a victim log in to a session prepared in advance. Only its digest is kept.

All sessions are in memory, so that a request costs one look-up. They are stored when they begin and
end, and every minute while they are used, so that they outlive a restart.
"""

from __future__ import annotations

import asyncio
import hashlib
import secrets
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Final

import msgspec

from egressd.console.ports import AccountStore
from egressd.model.console import Session
from egressd.model.errors import Failed

IDLE_S: Final = 30 * 60
ABSOLUTE_S: Final = 12 * 60 * 60
SESSIONS_MAX: Final = 100
"""Sessions kept; beyond this number, the one that was unused longest ends."""

_AHEAD_S: Final = 5 * 60
"""Seconds that a session may seem to begin in the future, after the clock was set back."""
_STORE_EVERY_S: Final = 60
_AGENT_MAX: Final = 200


class Sessions:
    """The sessions of one device. `clock` returns Unix time in seconds."""

    def __init__(self, store: AccountStore, clock: Callable[[], float]) -> None:
        self._store = store
        self._clock = clock
        self._by_key: dict[str, Session] = {}
        self._stored_at: dict[str, int] = {}
        self._storing: set[asyncio.Task[None]] = set()
        self._ended: set[str] = set()
        """The keys of sessions that were ended here, and did not expire, since `take_ended`."""

    async def open(self) -> None:
        """Load the stored sessions and drop the expired ones. Raises Failed."""
        found = {session.key: session for session in await self._store.sessions()}
        self._by_key = {key: s for key, s in found.items() if self._is_current(s)}
        self._stored_at = {key: s.seen_at for key, s in self._by_key.items()}
        if stale := found.keys() - self._by_key.keys():
            with suppress(Failed):  # expired sessions are refused even if they stay stored
                await self._store.drop_sessions(stale)

    def prepare(self, binding: str, source: str, agent: str) -> tuple[str, Session]:
        """Return a new session and its secret. The session is valid after `admit`.

        `find` returns it only for the same `binding`: the name of the cookie that holds the secret.
        """
        secret = secrets.token_urlsafe(32)
        now = int(self._clock())
        session = Session(
            key=_key(binding, secret),
            id=secrets.token_hex(4),
            source=source,
            agent=agent[:_AGENT_MAX],
            created_at=now,
            seen_at=now,
        )
        return secret, session

    async def begin(self, session: Session) -> None:
        """Admit a prepared session, and store it if possible: a full disk prevents no login.

        After a restart, a session that could not be stored is lost, and an older session that was
        ended to keep to the limit may come back.
        """
        with suppress(Failed):
            await self._store.add_session(session)
        self.admit(session)
        others = [other for other in self._by_key.values() if other.key != session.key]
        # If the clock was set back, sessions may have been used later than this one.
        others.sort(key=lambda other: (self._is_current(other), other.seen_at))
        with suppress(Failed):
            await self.end(others[: max(0, len(others) + 1 - SESSIONS_MAX)])

    def admit(self, session: Session) -> None:
        """Make a prepared session valid."""
        self._by_key[session.key] = session
        self._stored_at[session.key] = session.seen_at

    def find(self, binding: str, secret: str) -> Session | None:
        """Return the session with this secret, unless it has expired."""
        session = self._by_key.get(_key(binding, secret))
        if session is None:
            return None
        if not self._is_current(session):
            self._forget(session)
            return None
        return session

    def touch(self, session: Session) -> None:
        """Note a use of the session."""
        now = int(self._clock())
        if session.key in self._by_key:
            self._by_key[session.key] = msgspec.structs.replace(session, seen_at=now)
            if now - self._stored_at.get(session.key, 0) >= _STORE_EVERY_S:
                self._stored_at[session.key] = now
                self._later(self._store_seen({session.key: now}))

    def is_live(self, key: str) -> bool:
        """True if the session with this key goes on."""
        session = self._by_key.get(key)
        return session is not None and self._is_current(session)

    def current(self) -> list[Session]:
        """Return the sessions that go on, the latest first."""
        current = [s for s in self._by_key.values() if self._is_current(s)]
        return sorted(current, key=lambda s: s.created_at, reverse=True)

    async def end(self, sessions: list[Session]) -> None:
        """End sessions at once. Raises Failed if they could come back after a restart."""
        self._ended.update(session.key for session in sessions)
        for session in sessions:
            self._by_key.pop(session.key, None)
            self._stored_at.pop(session.key, None)
        if sessions:
            await self._store.drop_sessions([session.key for session in sessions])

    def replace_all(self, session: Session) -> None:
        """Keep only `session`; the store has done this already."""
        self._ended.update(self._by_key)
        self.clear()
        self.admit(session)

    def clear(self) -> None:
        """Keep no session; the store has done this already."""
        self._by_key.clear()
        self._stored_at.clear()

    def take_ended(self) -> set[str]:
        """Return the keys of sessions that were ended here since the last call."""
        ended, self._ended = self._ended, set()
        return ended

    def adopt(self, session: Session) -> bool:
        """Admit a session that began at another member of the site, or note its use there. Return
        False if it is over by this member's clock. It is not stored: after a restart this member
        reads it from the site again.
        """
        if not self._is_current(session):
            return False
        own = self._by_key.get(session.key)
        if own is None or own.seen_at < session.seen_at:
            self.admit(session)
        return True

    def forget(self, key: str) -> None:
        """End a session that another member has ended."""
        if key in self._by_key:
            self._forget(self._by_key[key])

    def is_used(self, seen_at: int) -> bool:
        """True if a session that was used last at `seen_at` may go on."""
        return self._clock() < seen_at + IDLE_S

    def is_past(self, seen_at: int) -> bool:
        """True if a session that was used last at `seen_at` cannot go on at any member."""
        return self._clock() >= seen_at + ABSOLUTE_S

    def expires_at(self, session: Session) -> int:
        """Return the time when the session ends if it is not used any more."""
        return min(session.seen_at + IDLE_S, session.created_at + ABSOLUTE_S)

    async def close(self) -> None:
        """Wait until pending changes are stored."""
        await asyncio.gather(*self._storing)

    def _is_current(self, session: Session) -> bool:
        now = self._clock()
        return session.created_at - _AHEAD_S <= now < self.expires_at(session)

    def _forget(self, session: Session) -> None:
        del self._by_key[session.key]
        self._stored_at.pop(session.key, None)
        self._later(self._drop(session.key))

    async def _store_seen(self, seen_at: dict[str, int]) -> None:
        with suppress(Failed):  # after a restart, the session only expires earlier
            await self._store.touch_sessions(seen_at)

    async def _drop(self, key: str) -> None:
        with suppress(Failed):  # an expired session is refused even if it stays stored
            await self._store.drop_sessions([key])

    def _later(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._storing.add(task)
        task.add_done_callback(self._storing.discard)


def _key(binding: str, secret: str) -> str:
    return hashlib.sha256(f"{binding}={secret}".encode("utf-8", "replace")).hexdigest()
