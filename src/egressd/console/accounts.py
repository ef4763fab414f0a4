"""Setup, login and the change of the password: the only ways to a session."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import structlog

from egressd.console.passwords import LENGTH, Passwords, same_code
from egressd.console.ports import AccountStore, SetupCode
from egressd.console.sessions import Sessions
from egressd.console.throttle import Throttle
from egressd.model.console import Session
from egressd.model.errors import EgressdError, Invalid
from egressd.model.names import has_control_characters
from egressd.model.source import source_of

log = structlog.get_logger()

GUESSES_AT_ONCE: Final = 20
_BUSY_S: Final = 5.0
"""When to try again while too many guesses, from wherever, wait for their turn."""

WRONG_CODE: Final = (
    "the setup code is wrong, or was used already; `egressd console code` shows or makes one"
)
WRONG_PASSWORD: Final = "the password is wrong"  # noqa: S105 - an error text


class Denied(EgressdError):
    """The secret is not the right one."""


class TooSoon(EgressdError):
    """Too many guesses: this one was not looked at."""

    def __init__(self, wait_s: float) -> None:
        self.retry_after = max(1, round(wait_s))
        super().__init__(f"too many wrong attempts: try again in {self.retry_after} seconds")


class Visitor:
    """Who asks: where from, with which browser, and the cookie that a session will be in."""

    def __init__(self, source: str, agent: str, cookie: str) -> None:
        self.source = source
        self.agent = agent
        self.cookie = cookie


class Accounts:
    """The one account there is: the administrator's."""

    def __init__(
        self, store: AccountStore, code: SetupCode, sessions: Sessions, throttle: Throttle
    ) -> None:
        self._store = store
        self._code = code
        self._sessions = sessions
        self._throttle = throttle
        self._passwords = Passwords()
        self._turn = asyncio.Lock()
        self._guesses = 0
        self._has_password = False

    async def open(self) -> None:
        """Make and show a setup code where nobody could log in. Raises Failed."""
        await self._sessions.open()
        if not await self.has_password():
            code = self._code.code() or self._code.renew()
            log.warning("the console waits for its password to be chosen", setup_code=code)

    def awaits_setup(self) -> bool:
        """Whether a setup code is there to be used. Raises Failed."""
        return self._code.code() is not None

    async def has_password(self) -> bool:
        """Whether there is a password to log in with. Raises Failed."""
        # Asked for by everybody, and never false again: the store may be busy for seconds.
        self._has_password = self._has_password or await self._store.password() is not None
        return self._has_password

    async def set_up(self, visitor: Visitor, code: str, password: str) -> tuple[str, Session]:
        """Choose the password with the setup code; the new session and its secret.

        The code is used up before anything else happens, and counts again where the password could
        not be stored. Every other session ends.
        Raises Invalid, Denied, TooSoon, Failed.
        """
        _check(password)
        async with self._guess(visitor):
            return await self._set_up(visitor, code, password)

    async def _set_up(self, visitor: Visitor, code: str, password: str) -> tuple[str, Session]:
        expected = self._code.code()
        if expected is None or not same_code(code, expected):
            raise self._denied(visitor, WRONG_CODE)
        self._throttle.forgive(source_of(visitor.source).address)
        with self._code.used_up():
            return await self._put(visitor, password)

    async def log_in(self, visitor: Visitor, password: str) -> tuple[str, Session]:
        """A new session and its secret. Raises Denied, TooSoon, Failed."""
        async with self._guess(visitor):
            await self._verify(visitor, password)
            secret, session = self._sessions.prepare(visitor.cookie, visitor.source, visitor.agent)
            await self._sessions.begin(session)
            return secret, session

    async def change_password(
        self, visitor: Visitor, current: str, password: str
    ) -> tuple[str, Session]:
        """Replace the password; a new session, and its secret, which is the only one to go on.

        Raises Invalid, Denied, TooSoon, Failed.
        """
        _check(password)
        async with self._guess(visitor):
            await self._verify(visitor, current)
            return await self._put(visitor, password)

    async def _put(self, visitor: Visitor, password: str) -> tuple[str, Session]:
        hash_ = await self._passwords.hash(password)
        secret, session = self._sessions.prepare(visitor.cookie, visitor.source, visitor.agent)
        await self._store.set_password(hash_, session)
        self._sessions.replace_all(session)
        return secret, session

    async def _verify(self, visitor: Visitor, password: str) -> None:
        hash_ = await self._store.password()
        if (
            hash_ is None
            or len(password) > LENGTH[1]
            or not await self._passwords.fits(password, hash_)
        ):
            raise self._denied(visitor, WRONG_PASSWORD)
        self._throttle.forgive(source_of(visitor.source).address)

    @asynccontextmanager
    async def _guess(self, visitor: Visitor) -> AsyncIterator[None]:
        """A guess that is looked at inside, one at a time: no session begins by a password that
        is being replaced. Raises TooSoon for one that is not looked at.
        """
        if self._guesses >= GUESSES_AT_ONCE:
            raise TooSoon(_BUSY_S)
        if wait := self._throttle.charge(source_of(visitor.source).address):
            raise TooSoon(wait)
        self._guesses += 1
        try:
            async with self._turn:
                yield
        finally:
            self._guesses -= 1

    def _denied(self, visitor: Visitor, text: str) -> Denied:
        log.warning("somebody was not let in to the console", source=visitor.source, reason=text)
        return Denied(text)


def _check(password: str) -> None:
    fewest, most = LENGTH
    if not fewest <= len(password) <= most or has_control_characters(password):
        raise Invalid(f"password must have {fewest} to {most} characters, none of them a control")
