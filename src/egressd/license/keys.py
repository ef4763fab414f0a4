"""Ed25519 key pairs (RFC 8032): the vendor's private key, the devices' pinned public ones."""

from __future__ import annotations

import base64
import binascii
import hashlib
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from egressd.model.errors import Failed, Invalid

if TYPE_CHECKING:  # a device without keys does not load the library
    from cryptography.hazmat.primitives.asymmetric.ed25519 import (
        Ed25519PrivateKey,
        Ed25519PublicKey,
    )

KeyRing = Mapping[str, "Ed25519PublicKey"]
"""Trusted public keys by key id."""

_RAW_KEY_BYTES = 32


def key_id(key: Ed25519PublicKey) -> str:
    """Return the id of `key`: the first 16 hex digits of its SHA-256, so no registry is needed."""
    return hashlib.sha256(key.public_bytes_raw()).hexdigest()[:16]


def public_key_text(key: Ed25519PublicKey) -> str:
    """Return `key` as one line of base64, as a device's configuration names trusted keys."""
    return base64.b64encode(key.public_bytes_raw()).decode()


def key_ring(texts: Iterable[str]) -> KeyRing:
    """Return the pinned keys from their base64 lines. Raises Invalid, which names every bad one."""
    ring: dict[str, Ed25519PublicKey] = {}
    problems = []
    for position, text in enumerate(texts):
        try:
            raw = base64.b64decode(text, validate=True)
        except (binascii.Error, ValueError):
            raw = b""
        if len(raw) == _RAW_KEY_BYTES:
            from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

            key = Ed25519PublicKey.from_public_bytes(raw)
            ring[key_id(key)] = key
        else:
            problems.append(
                f"public_keys[{position}] must be the base64 of a {_RAW_KEY_BYTES}-byte Ed25519 key"
            )
    if problems:
        raise Invalid(*problems)
    return ring


def write_private_key(path: Path) -> Ed25519PrivateKey:
    """Make a key pair and write the private key to the new file `path`, mode 0600, as PEM.

    Raises Failed if the file exists already: a vendor's key is never overwritten.
    """
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    key = Ed25519PrivateKey.generate()
    pem = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(pem)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise Failed(f"write the private key to {path}", error.strerror or str(error)) from error
    return key


def read_private_key(path: Path) -> Ed25519PrivateKey:
    """Return the private key in `path`. Raises Failed if there is none."""
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    action = f"read a private key from {path}"
    try:
        key = serialization.load_pem_private_key(path.read_bytes(), password=None)
    except OSError as error:
        raise Failed(action, error.strerror or str(error)) from error
    except (ValueError, TypeError) as error:
        raise Failed(action, "it does not hold an unencrypted private key in PEM") from error
    if not isinstance(key, Ed25519PrivateKey):
        raise Failed(action, "it holds a key of another kind than Ed25519")
    return key
