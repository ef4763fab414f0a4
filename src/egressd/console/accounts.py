"""Setup, login and the change of the password: the only ways to a session."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final, NamedTuple

import structlog

from egressd.console import devices
from egressd.console.passwords import LENGTH, Passwords, same_code
from egressd.console.ports import AccountStore, SetupCodeStore
from egressd.console.sessions import Sessions
from egressd.console.throttle import TOLD_S, GuessThrottle
from egressd.model.console import Session
from egressd.model.errors import Invalid, Unfit
from egressd.model.faults import Fault, fault
from egressd.model.names import has_control_characters
from egressd.model.source import source_of
from egressd.model.wording import Sentence, say

log = structlog.get_logger()

GUESSES_AT_ONCE: Final = 20
"""Guesses of known browsers that may wait at the same time."""
STRANGERS_AT_ONCE: Final = 10
"""Guesses of unknown browsers that may wait at the same time."""
_BUSY_S: Final = 5.0
"""Seconds until a retry is advised, while too many guesses of any origin wait for their turn."""

WRONG_CODE: Final = fault("", "wrong-code")
WRONG_PASSWORD: Final = fault("", "wrong-password")


class Denied(Unfit):
    """The secret is wrong."""


class TooSoon(Unfit):
    """Too many guesses: this one was not checked."""

    def __init__(self, wait_s: float) -> None:
        self.retry_after = max(1, round(wait_s))
        super().__init__(fault("", "too-soon", seconds=self.retry_after))


class Visitor(NamedTuple):
    """The browser that sends a request."""

    source: str
    """The browser's address."""
    agent: str
    cookie: str
    """The name of the cookie that will hold the session's secret."""
    device: str = ""
    """The value of the browser's cookie of `devices`."""
    session: str = ""
    """The id of the browser's present session; empty without one."""


class Login(NamedTuple):
    """A new session, and the cookie values for the browser that logged in."""

    secret: str
    session: Session
    device: str
    """The value for the cookie of `devices`."""


class Accounts:
    """The device's only account: the administrator's."""

    def __init__(
        self, store: AccountStore, code: SetupCodeStore, sessions: Sessions, throttle: GuessThrottle
    ) -> None:
        self._store = store
        self._code = code
        self._sessions = sessions
        self._throttle = throttle
        self._passwords = Passwords()
        self._turn = asyncio.Lock()
        self._guesses = 0
        self._hash: str | None = None
        """The password's hash as it was last read or stored."""
        self._told_at = -TOLD_S

    async def open(self) -> None:
        """Make and log a setup code if there is no password to log in with. Raises Failed."""
        await self._sessions.open()
        if not await self.has_password():
            code = self._code.code() or self._code.renew()
            log.warning("console setup pending: choose a password", setup_code=code)

    def awaits_setup(self) -> bool:
        """True if a setup code can be used. Raises Failed."""
        return self._code.code() is not None

    async def has_password(self) -> bool:
        """True if there is a password to log in with. Raises Failed."""
        # Every browser asks for this, and it never turns false again. The store may be busy for
        # seconds.
        return self._hash is not None or await self._read_hash() is not None

    def problems(self) -> list[Sentence]:
        """Return a sentence for each network with guesses that were refused within the
        last minute.
        """
        return [
            say("password-guessed", network=network)
            for network in self._throttle.refused_networks()
        ]

    async def set_up(self, visitor: Visitor, code: str, password: str) -> Login:
        """Choose the password with the setup code.

        A right code is accepted after any number of wrong ones: its 60 random bits cannot be
        guessed.

        The code is used up before anything else happens; it becomes valid again if the password
        cannot be stored. Every other session ends. Raises Invalid, Denied, TooSoon, Failed.
        """
        _check(password)
        if not self._is_code(code):
            self._charge(visitor)
            raise self._denied(visitor, WRONG_CODE)
        async with self._turn:
            if not self._is_code(code):  # another request used the code meanwhile
                raise self._denied(visitor, WRONG_CODE)
            self._forgive(visitor)
            with self._code.used_up():
                return await self._put(visitor, password)

    async def log_in(self, visitor: Visitor, password: str) -> Login:
        """Begin a session. Raises Denied, TooSoon, Failed."""
        async with self._guess(visitor):
            hash_ = await self._verify(visitor, password)
            secret, session = self._sessions.prepare(visitor.cookie, visitor.source, visitor.agent)
            await self._sessions.begin(session)
            return Login(secret, session, _device(hash_, visitor))

    async def change_password(self, visitor: Visitor, current: str, password: str) -> Login:
        """Replace the password, end every session and begin a new one.

        Raises Invalid, Denied, TooSoon, Failed.
        """
        _check(password)
        async with self._guess(visitor):
            await self._verify(visitor, current)
            return await self._put(visitor, password)

    async def password_hash(self) -> str:
        """Return the password's hash; empty before one was chosen. Raises Failed."""
        return await self._store.password() or ""

    async def adopt_password(self, hash_: str) -> None:
        """Take the password that was chosen at another member of the site. All sessions of this
        member end, and its setup code. Raises Failed.
        """
        async with self._turn:
            await self._store.adopt_password(hash_)
            self._hash = hash_
            self._sessions.clear()
            if self._code.code() is not None:
                with self._code.used_up():
                    pass

    async def _put(self, visitor: Visitor, password: str) -> Login:
        hash_ = await self._passwords.hash(password)
        secret, session = self._sessions.prepare(visitor.cookie, visitor.source, visitor.agent)
        await self._store.set_password(hash_, session)
        self._hash = hash_
        self._sessions.replace_all(session)
        return Login(secret, session, _device(hash_, visitor))

    async def _read_hash(self) -> str | None:
        self._hash = await self._store.password()
        return self._hash

    def _is_code(self, code: str) -> bool:
        expected = self._code.code()
        return expected is not None and same_code(code, expected)

    async def _verify(self, visitor: Visitor, password: str) -> str:
        """Return the password's hash if `password` is right. Raises Denied, Failed."""
        hash_ = await self._read_hash()
        if (
            hash_ is None
            or len(password) > LENGTH[1]
            or not await self._passwords.fits(password, hash_)
        ):
            raise self._denied(visitor, WRONG_PASSWORD)
        self._forgive(visitor)
        return hash_

    def _known(self, visitor: Visitor) -> str:
        """Return the account that a known browser's guesses are counted by; empty for an unknown
        one.

        A browser is known if a user has logged in with it before.
        """
        name = devices.known(self._hash or "", devices.cookie_of(visitor.cookie), visitor.device)
        if name:
            return f"device {name}"
        return f"session {visitor.session}" if visitor.session else ""

    def _charge(self, visitor: Visitor) -> None:
        wait = self._throttle.charge(source_of(visitor.source), self._known(visitor))
        if wait:
            self._tell_refused(visitor, wait)
            raise TooSoon(wait)

    def _forgive(self, visitor: Visitor) -> None:
        self._throttle.forgive(source_of(visitor.source), self._known(visitor))

    def _tell_refused(self, visitor: Visitor, wait_s: float) -> None:
        now = asyncio.get_running_loop().time()
        if now >= self._told_at + TOLD_S:
            self._told_at = now
            log.warning(
                "too many console login attempts",
                source=visitor.source,
                for_s=round(wait_s),
            )

    @asynccontextmanager
    async def _guess(self, visitor: Visitor) -> AsyncIterator[None]:
        """Hold a guess's turn while the block checks it, one guess at a time: no session begins
        with a password that is being replaced. Raises TooSoon for a guess that is not checked.
        """
        if self._guesses >= (GUESSES_AT_ONCE if self._known(visitor) else STRANGERS_AT_ONCE):
            raise TooSoon(_BUSY_S)
        self._charge(visitor)
        self._guesses += 1
        try:
            async with self._turn:
                yield
        finally:
            self._guesses -= 1

    def _denied(self, visitor: Visitor, why: Fault) -> Denied:
        self._throttle.wrong()
        denied = Denied(why)
        log.warning("console login refused", source=visitor.source, reason=str(denied))
        return denied


def _device(hash_: str, visitor: Visitor) -> str:
    return devices.issue(hash_, devices.cookie_of(visitor.cookie), visitor.device)


def _check(password: str) -> None:
    fewest, most = LENGTH
    if not fewest <= len(password) <= most or has_control_characters(password):
        raise Invalid(fault("password", "password-form", least=fewest, most=most))
