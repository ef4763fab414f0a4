"""Secrets in a database that others than this device can read.

A sealed text is AES-256-GCM with a key that only the members of the site have (NIST SP 800-38D).
The place of the text, its table, column and row, is authenticated with it: a sealed text that is
copied to another row is refused there.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import secrets
from typing import Final, Protocol

KEY_BYTES: Final = 32
_NONCE_BYTES: Final = 12
"""The length for which GCM is specified to be fastest and safe with random nonces: 2^32 texts by
one key (NIST SP 800-38D, 8.3)."""
_MARK: Final = "sealed:1:"
"""The first characters of every sealed text; the number is that of the format."""


class Seal(Protocol):
    """Seals texts for their places, and opens them."""

    def close(self, text: str, place: str) -> str:
        """Return the text as it is stored at `place`."""
        ...

    def open(self, stored: str, place: str) -> str:
        """Return the text that was stored at `place`. Raises ValueError if it is not from there, or
        was sealed with another key.
        """
        ...


class SiteSeal:
    """The seal with a site's key."""

    def __init__(self, key: bytes) -> None:
        # Imported here: a device without a site does not need it.
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        if len(key) != KEY_BYTES:
            raise ValueError(f"a site's key has {KEY_BYTES} bytes")
        self._cipher = AESGCM(key)
        self.key_id = hashlib.sha256(b"egressd site key\0" + key).hexdigest()[:16]
        """Identifies the key without telling it: the same on all members, and in the database."""

    def close(self, text: str, place: str) -> str:
        """Return the sealed text. An empty text stays empty: it is no secret that there is none."""
        if not text:
            return text
        return _MARK + base64.b64encode(self.close_bytes(text.encode(), place)).decode()

    def open(self, stored: str, place: str) -> str:
        """Return the text. Raises ValueError for one that is not sealed, too: it was
        written without the key.
        """
        if not stored:
            return stored
        if not stored.startswith(_MARK):
            raise ValueError(f"{place} is not sealed")
        try:
            sealed = base64.b64decode(stored.removeprefix(_MARK), validate=True)
        except binascii.Error as error:
            raise ValueError(f"{place} was not sealed with the site's key") from error
        return self.open_bytes(sealed, place).decode()

    def close_bytes(self, content: bytes, place: str) -> bytes:
        """Return the sealed content, which begins with its nonce."""
        nonce = secrets.token_bytes(_NONCE_BYTES)
        return nonce + self._cipher.encrypt(nonce, content, place.encode())

    def open_bytes(self, sealed: bytes, place: str) -> bytes:
        """Return what `close_bytes` has sealed. Raises ValueError."""
        from cryptography.exceptions import InvalidTag

        nonce, content = sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:]
        try:
            return self._cipher.decrypt(nonce, content, place.encode())
        except (InvalidTag, ValueError) as error:
            raise ValueError(f"{place} was not sealed with the site's key") from error
