"""Scoped tokens: they are made, found by their secret, expire and are deleted.

All of them are in memory, by the digest of their secret, so that a request costs one digest and one
look-up, whose time tells nothing of the secrets. They are stored when they are made and deleted,
and every few minutes while they are used.
"""

from __future__ import annotations

import asyncio
import hashlib
import secrets
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from typing import Final, Protocol
from weakref import WeakValueDictionary

import msgspec

from egressd.model.errors import AlreadyThere, Failed, Invalid, Missing, OverQuota
from egressd.model.faults import fault
from egressd.model.names import new_name_problem
from egressd.model.tokens import TOKENS_MAX, Need, ScopedToken
from egressd.model.wording import Sentence, say

PREFIX: Final = "egressd_"
"""The first characters of each scoped token, by which programs that look for leaked secrets know
one."""
STORE_EVERY_S: Final = 300
"""Seconds between two notes of a token's last use on the disk: flash memory wears."""
_BYTES: Final = 32
_LOOK_S: Final = 10.0
"""Seconds between looks at the clock, which may be set, until a token expires."""


class TokenStore(Protocol):
    """The storage of tokens. Every method raises Failed."""

    async def tokens(self) -> Sequence[ScopedToken]:
        """Return all tokens, expired ones too."""
        ...

    async def put_tokens(self, tokens: Sequence[ScopedToken]) -> None:
        """Add tokens, or replace those of the same id."""
        ...

    async def drop_tokens(self, ids: Collection[str]) -> None:
        """Delete tokens by id."""
        ...


class Tokens:
    """The scoped tokens of a device. `clock` returns Unix time in seconds."""

    def __init__(self, store: TokenStore, clock: Callable[[], float]) -> None:
        self._store = store
        self.clock = clock
        self._by_id: dict[str, ScopedToken] = {}
        self._ids: dict[str, str] = {}
        """Digest -> id."""
        self._stored_at: dict[str, int] = {}
        """Id -> the last use that is on the disk."""
        self._undeleted: dict[str, ScopedToken] = {}
        """Tokens that do not count any more, and could not be deleted from the disk."""
        self._deleted: set[str] = set()
        """The ids of tokens that were deleted here since `take_deleted`."""
        self._gone: WeakValueDictionary[str, asyncio.Event] = WeakValueDictionary()
        self._storing: set[asyncio.Task[None]] = set()

    async def open(self) -> None:
        """Load the stored tokens. Raises Failed."""
        for token in await self._store.tokens():
            self._admit(token)

    # --- For operators. -------------------------------------------------------------------

    def list(self) -> Sequence[ScopedToken]:
        """Return all tokens, the oldest first."""
        return sorted(self._by_id.values(), key=lambda token: (token.created_at, token.id))

    def get(self, id_: str) -> ScopedToken:
        """Return a token. Raises Missing."""
        if id_ not in self._by_id:
            raise Missing(fault("", "no-such-token", id=id_))
        return self._by_id[id_]

    def is_expired(self, token: ScopedToken) -> bool:
        """Return True if a token has expired by this device's clock."""
        return token.is_expired(self.clock())

    async def create(
        self, name: str, scopes: Sequence[str], expires_at: int | None, by: str
    ) -> tuple[str, ScopedToken]:
        """Make a token for `by`, who is its author, and return its secret with it. `expires_at` is
        None for a token that does not expire. Raises Invalid, AlreadyThere, OverQuota, Failed.
        """
        now = int(self.clock())
        if expires_at is not None and expires_at <= now:
            raise Invalid(fault("expires_at", "time-to-come"))
        if problem := new_name_problem(name):
            raise Invalid(problem)  # it is the author of changes in their record
        if any(token.name == name for token in self._by_id.values()):
            raise AlreadyThere(fault("name", "name-taken", thing="token", name=name))
        if len(self._by_id) >= TOKENS_MAX:
            raise OverQuota(fault("", "too-many-tokens", most=TOKENS_MAX))
        secret = PREFIX + secrets.token_urlsafe(_BYTES)
        token = ScopedToken(
            id=secrets.token_hex(4),
            name=name,
            digest=digest_of(secret.encode()),
            scopes=tuple(dict.fromkeys(scopes)),
            created_at=now,
            created_by=by,
            expires_at=expires_at or 0,
        )
        self._admit(token)  # so that two at once do not get one name
        try:
            await self._store.put_tokens([token])
        except BaseException:
            self._end(token.id)
            raise
        return secret, token

    async def delete(self, id_: str) -> ScopedToken:
        """Delete a token, which does not count from now on. Raises Missing; Failed if it would
        count again after a restart: then it can be deleted again.
        """
        token = self._undeleted.get(id_) or self.get(id_)
        self._undeleted[id_] = token
        self._end(id_)
        self._deleted.add(id_)
        await self._store.drop_tokens([id_])
        self._undeleted.pop(id_, None)  # two may delete it at once
        return token

    # --- For the gate. --------------------------------------------------------------------

    def find(self, secret: bytes) -> TokenCaller | None:
        """Return the caller that bears `secret`, and note the use of its token; None if that is no
        token that counts.
        """
        if not self._ids:
            return None
        id_ = self._ids.get(digest_of(secret))
        if id_ is None or not self.is_live(id_):
            return None
        return TokenCaller(self, self._by_id[id_])

    def find_link(self, secret: bytes) -> TokenCaller | None:
        """Return the caller of a rotation link with the key `secret`, and note the use of its
        token; None if that is no token for a rotation, or none that counts.
        """
        id_ = self._ids.get(digest_of(secret))
        is_link = id_ is not None and self._by_id[id_].rotates
        return self.find(secret) if is_link else None

    def is_live(self, id_: str) -> bool:
        """Return True if a token counts. The call counts as a use of it."""
        token = self._by_id.get(id_)
        if token is None or token.is_expired(self.clock()):
            return False
        now = int(self.clock())
        if now > token.last_used_at:
            used = msgspec.structs.replace(token, last_used_at=now)
            self._by_id[id_] = used
            if now - self._stored_at[id_] >= STORE_EVERY_S:
                self._stored_at[id_] = now
                self._store_later(used)
        return True

    async def over(self, id_: str) -> Sentence:
        """Wait until a token does not count any more, and return why."""
        gone = self._gone.get(id_)
        if gone is None:
            gone = self._gone[id_] = asyncio.Event()
        while (token := self._by_id.get(id_)) is not None:
            left_s = token.expires_at - self.clock() if token.expires_at else _LOOK_S
            if left_s <= 0:
                return say("token-expired", name=token.name)
            with suppress(TimeoutError):
                async with asyncio.timeout(min(left_s, _LOOK_S)):
                    await gone.wait()
        return say("token-gone")

    # --- For the other members of a site. -------------------------------------------------

    def take_deleted(self) -> set[str]:
        """Return the ids of tokens that were deleted here since the last call."""
        deleted, self._deleted = self._deleted, set()
        return deleted

    async def adopt(self, token: ScopedToken) -> None:
        """Take over a token that was made or used at another member, unless it was deleted here
        meanwhile. Raises Failed.
        """
        own = self._by_id.get(token.id)
        is_deleted = token.id in self._deleted or token.id in self._undeleted
        if not is_deleted and (own is None or own.last_used_at < token.last_used_at):
            self._admit(token)
            await self._store.put_tokens([token])

    async def forget(self, ids: Collection[str]) -> None:
        """Delete tokens that another member has deleted. Raises Failed."""
        for id_ in ids:
            self._end(id_)
        if ids:
            await self._store.drop_tokens(ids)

    # --------------------------------------------------------------------------------------

    async def close(self) -> None:
        """Write the last uses that are not on the disk yet."""
        await asyncio.gather(*self._storing)
        used = [
            token
            for token in self._by_id.values()
            if token.last_used_at > self._stored_at[token.id]
        ]
        if used:
            with suppress(Failed):  # only the time of a use is lost
                await self._store.put_tokens(used)

    def _admit(self, token: ScopedToken) -> None:
        self._by_id[token.id] = token
        self._ids[token.digest] = token.id
        self._stored_at[token.id] = token.last_used_at

    def _end(self, id_: str) -> None:
        token = self._by_id.pop(id_, None)
        if token is not None:
            del self._ids[token.digest]
            del self._stored_at[id_]
        if gone := self._gone.get(id_):
            gone.set()

    def _store_later(self, used: ScopedToken) -> None:
        async def store() -> None:
            if used.id not in self._by_id:  # the request that was the use may have deleted it
                return
            with suppress(Failed):  # only the time of a use is lost
                await self._store.put_tokens([used])

        task = asyncio.get_running_loop().create_task(store())
        self._storing.add(task)
        task.add_done_callback(self._storing.discard)


class TokenCaller:
    """A caller that bears a scoped token, as the gate's caller."""

    def __init__(self, tokens: Tokens, token: ScopedToken) -> None:
        self._tokens = tokens
        self._token = token
        self.id = token.id
        self.name = f"token {token.name}"
        self.rotates = token.rotates
        """The target that it may rotate; empty if it is for something else."""

    def may(self, need: Need) -> bool:
        """Return True if its scopes cover what an endpoint needs."""
        return self._token.covers(need)

    def is_live(self) -> bool:
        """Return True if the token still counts. The call counts as a use of it."""
        return self._tokens.is_live(self._token.id)

    async def over(self) -> Sentence:
        """Wait until the token does not count any more, and return why."""
        return await self._tokens.over(self._token.id)


def digest_of(secret: bytes) -> str:
    """Return the digest by which a token is kept."""
    return hashlib.sha256(secret).hexdigest()
