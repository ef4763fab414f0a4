"""New keys of WireGuard, which are kept nowhere."""

from __future__ import annotations

from base64 import b64encode
from typing import NamedTuple


class KeyPair(NamedTuple):
    """A key of Curve25519 (RFC 7748) as WireGuard writes it: 32 bytes in base64."""

    private: str
    """For the node's ``private-key``."""
    public: str
    """For the node's server."""


def new_key_pair() -> KeyPair:
    """Return a new key."""
    # Imported here: it is large, and few ask for a key.
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

    key = X25519PrivateKey.generate()
    return KeyPair(
        private=b64encode(key.private_bytes_raw()).decode(),
        public=b64encode(key.public_key().public_bytes_raw()).decode(),
    )
