"""The license file: a JSON envelope around exact payload bytes and their signature.

The signature covers the payload byte for byte, so no
value has to be serialised the same way twice. ``kid`` only selects the trusted key; there is one
algorithm, and a file cannot select another.
"""

from __future__ import annotations

import base64
import binascii
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

import msgspec

from egressd.license.keys import KeyRing, key_id

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

CAPABILITIES: Final = ("api", "line_dns")
"""The capabilities of licenses: the management API, and DNS profiles of single lines."""

LICENSE_VERSION: Final = 1
"""Raised when an older device could misread a license; another version is refused."""

FILE_MAX: Final = 64 * 1024
"""Bytes in a license file; one takes about 500."""


class License(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The capabilities sold for one device.

    ``api_trial_calls`` are the calls that a device without the ``api`` capability may
    make. ``expires_at`` (UTC) is the first second in which it no longer
    holds; empty if it does not expire.
    """

    version: int
    serial: str
    device: str
    capabilities: tuple[str, ...]
    proxy_service_quota: int
    api_trial_calls: int
    issued_at: str
    expires_at: str = ""

    @property
    def expiry(self) -> datetime | None:
        """`expires_at` as a time, or None. Raises ValueError if it is not one."""
        if not self.expires_at:
            return None
        time = datetime.fromisoformat(self.expires_at)
        if time.utcoffset() != timedelta():
            raise ValueError(f"{self.expires_at} is not a time in UTC")
        return time


class _Envelope(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    kid: str
    payload: str
    signature: str


class Untrusted(Exception):
    """The file is not a license that this device trusts. The text has the reason."""


def sign(license_: License, key: Ed25519PrivateKey) -> bytes:
    """Return the license file for `license_`, signed with `key`."""
    payload = msgspec.json.encode(license_)
    envelope = _Envelope(
        kid=key_id(key.public_key()),
        payload=base64.b64encode(payload).decode(),
        signature=base64.b64encode(key.sign(payload)).decode(),
    )
    return msgspec.json.format(msgspec.json.encode(envelope), indent=2) + b"\n"


def read(data: bytes, trusted: KeyRing) -> License:
    """Return the license in the file `data` if its signature is valid. Raises Untrusted."""
    if len(data) > FILE_MAX:
        raise Untrusted(f"the file is larger than {FILE_MAX} bytes")
    try:
        envelope = msgspec.json.decode(data, type=_Envelope)
        payload = base64.b64decode(envelope.payload, validate=True)
        signature = base64.b64decode(envelope.signature, validate=True)
    except (msgspec.DecodeError, UnicodeDecodeError, binascii.Error, ValueError) as error:
        raise Untrusted("the file is not a license, or is cut short") from error
    key = trusted.get(envelope.kid)
    if key is None:
        raise Untrusted("it is signed with a key that this device does not trust")
    from cryptography.exceptions import InvalidSignature  # a trusted key has loaded the library

    try:
        key.verify(signature, payload)
    except InvalidSignature as error:
        raise Untrusted("its signature does not match: it was changed after signing") from error
    return _decode(payload)


def _decode(payload: bytes) -> License:
    # The payload is signed by a trusted key, so a fault means an unknown version.
    try:
        license_ = msgspec.json.decode(payload, type=License)
        _ = license_.expiry
    except (msgspec.DecodeError, ValueError) as error:
        raise Untrusted(f"its content is not understood by this version: {error}") from error
    if license_.version != LICENSE_VERSION:
        raise Untrusted(f"it has version {license_.version}; this device reads {LICENSE_VERSION}")
    return license_
