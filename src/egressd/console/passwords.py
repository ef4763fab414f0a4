"""Passwords: hashed with Argon2id (RFC 9106), one at a time.

A hash takes 19 MiB and about 0.1 s: the least that OWASP's password storage guide allows. Only one
hash runs at a time for any number of guesses, so that memory and CPU remain for the device's other
work.
"""

from __future__ import annotations

import asyncio
import hmac
from typing import Final

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError

LENGTH: Final = (10, 1000)
"""Characters of a password: the fewest and the most."""

_HASHER: Final = PasswordHasher(time_cost=2, memory_cost=19 * 1024, parallelism=1)


class Passwords:
    """Makes and checks hashes in a thread."""

    def __init__(self) -> None:
        self._turn = asyncio.Lock()

    async def hash(self, password: str) -> str:
        """Return a salted hash, with its parameters."""
        async with self._turn:
            return await asyncio.to_thread(_HASHER.hash, password)

    async def fits(self, password: str, hash_: str) -> bool:
        """True if `hash_` was made of `password`."""
        async with self._turn:
            return await asyncio.to_thread(_fits, password, hash_)


def same_code(sent: str, expected: str) -> bool:
    """True if `sent` is the code `expected`; case, spaces and hyphens do not matter."""
    return hmac.compare_digest(_plain(sent), _plain(expected))


def _plain(code: str) -> bytes:
    return "".join(code.upper().replace("-", "").split()).encode("utf-8", "replace")


def _fits(password: str, hash_: str) -> bool:
    try:
        return _HASHER.verify(hash_, password)
    except (VerificationError, InvalidHashError):
        return False
