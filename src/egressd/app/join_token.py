"""The token that a box joins a site with, and the seal of what the two boxes write to each other.

It has the database's address, the certificate of the site's authority, by which the database is
known, and a secret, from which come the password of the invitation's role and the key of the seal.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import secrets
from typing import Final, Self

import msgspec

from egressd.model.errors import Invalid
from egressd.store.sealing import KEY_BYTES, SiteSeal

_PREFIX: Final = "egressd1-"
"""The first characters of a token; the number is that of the format."""
_CHECK_BYTES: Final = 4


class JoinToken(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """The content of a token."""

    database: str
    """Connection string, without role and certificates."""
    site: str
    role: str
    """The invitation's role."""
    authority: bytes
    """The certificate of the site's authority, in DER."""
    secret: bytes

    @staticmethod
    def new_secret() -> bytes:
        """Return a secret."""
        return secrets.token_bytes(KEY_BYTES)

    @property
    def text(self) -> str:
        """The token as it is passed on."""
        content = msgspec.msgpack.encode(self)
        check = hashlib.sha256(content).digest()[:_CHECK_BYTES]
        return _PREFIX + base64.urlsafe_b64encode(check + content).rstrip(b"=").decode()

    @classmethod
    def read(cls, text: str) -> Self:
        """Return the token of a text. Raises Invalid."""
        given = "".join(text.split())  # terminals break long lines
        coded = given.removeprefix(_PREFIX)
        wrong = Invalid("token must be what egressd cluster invite printed, whole")
        try:
            packed = base64.b64decode(coded + "=" * (-len(coded) % 4), b"-_", validate=True)
        except (binascii.Error, ValueError):
            raise wrong from None
        check, content = packed[:_CHECK_BYTES], packed[_CHECK_BYTES:]
        if given == coded or hashlib.sha256(content).digest()[:_CHECK_BYTES] != check:
            raise wrong
        try:
            return msgspec.msgpack.decode(content, type=cls)
        except msgspec.DecodeError:
            raise wrong from None

    @property
    def password(self) -> str:
        """The password of the invitation's role."""
        return self._derived(b"password").hex()

    @property
    def seal(self) -> SiteSeal:
        """The seal of what the two boxes write to each other."""
        return SiteSeal(self._derived(b"seal"))

    def _derived(self, purpose: bytes) -> bytes:
        # The secret is random and whole, so that one HMAC is enough (RFC 5869, 3.3).
        return hmac.new(self.secret, b"egressd invitation\0" + purpose, hashlib.sha256).digest()
