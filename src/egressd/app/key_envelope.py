"""A site's new key, sealed for one member: how it comes to the members through the database.

The database and its administrator see no key. The new one is encrypted for the member's
certificate, by an ephemeral key on the same curve (ECDH, NIST SP 800-56A; HKDF, RFC 5869;
AES-256-GCM), and the whole is signed by the site's authority, which no other box has. It names
the keys that it replaces: an old envelope, put back into the database, is of no use to a member
that has a later key.
"""

from __future__ import annotations

import base64
import binascii
from typing import Final

import msgspec
from cryptography import x509
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from egressd.app import site_authority
from egressd.app.site_authority import SiteAuthority
from egressd.model.errors import Failed
from egressd.store.sealing import KEY_BYTES, SiteSeal

_CONTEXT: Final = b"egressd site key for a member\0"
_NONCE: Final = bytes(12)
"""The same each time: each encryption has a key of its own (NIST SP 800-38D, 8.3)."""


class KeyEnvelope(msgspec.Struct, frozen=True, kw_only=True):
    """The part of an envelope that the authority signs."""

    site: str
    key_id: str
    """The id of the new key."""
    replaces: tuple[str, ...]
    """The ids of all keys that the site had before."""
    ephemeral: bytes
    """A public key: an uncompressed point (SEC 1, 2.3.3)."""
    encrypted: bytes


def sealed(
    authority: SiteAuthority, certificate: str, key: bytes, *, site: str, replaces: tuple[str, ...]
) -> str:
    """Return `key` sealed for the member with that certificate, in PEM. Raises Failed."""
    try:
        member = x509.load_pem_x509_certificate(certificate.encode()).public_key()
    except ValueError as error:
        raise Failed("seal the site's key", f"a member's certificate: {error}") from error
    assert isinstance(member, ec.EllipticCurvePublicKey)  # the authority signs no others
    ephemeral = ec.generate_private_key(member.curve)
    cipher = _cipher(ephemeral.exchange(ec.ECDH(), member), site)
    envelope = KeyEnvelope(
        site=site,
        key_id=SiteSeal(key).key_id,
        replaces=replaces,
        ephemeral=ephemeral.public_key().public_bytes(
            serialization.Encoding.X962, serialization.PublicFormat.UncompressedPoint
        ),
        encrypted=cipher.encrypt(_NONCE, key, None),
    )
    content = msgspec.json.encode(envelope)
    parts = (content, authority.sign(_CONTEXT + content))
    return ".".join(base64.b64encode(part).decode() for part in parts)


def signed(text: str, authority: bytes) -> KeyEnvelope:
    """Return what an envelope says, in which the new key is closed. `authority` is the site's
    certificate in PEM. Raises Failed for an envelope that the authority has not signed.
    """
    action = "take the site's new key"
    try:
        content, signature = (base64.b64decode(part, validate=True) for part in text.split("."))
        envelope = msgspec.json.decode(content, type=KeyEnvelope)
    except (ValueError, binascii.Error, msgspec.DecodeError) as error:
        raise Failed(action, f"its envelope in the database is damaged: {error}") from error
    if not site_authority.has_signed(authority, _CONTEXT + content, signature):
        raise Failed(action, "its envelope in the database is not signed by the site's authority")
    return envelope


def opened(text: str, authority: bytes, private_key: bytes, *, site: str, own: str) -> bytes:
    """Return the key in an envelope. `private_key`, in PEM, is that of the member's certificate,
    and `own` the id of the site's key that it has. Raises Failed.
    """
    action = "take the site's new key"
    envelope = signed(text, authority)
    if envelope.site != site or own not in envelope.replaces:
        raise Failed(action, "its envelope in the database does not replace this box's key")
    try:
        member = serialization.load_pem_private_key(private_key, None)
        assert isinstance(member, ec.EllipticCurvePrivateKey)
        ephemeral = ec.EllipticCurvePublicKey.from_encoded_point(member.curve, envelope.ephemeral)
        cipher = _cipher(member.exchange(ec.ECDH(), ephemeral), site)
        key = cipher.decrypt(_NONCE, envelope.encrypted, None)
    except (ValueError, InvalidTag) as error:
        raise Failed(action, "its envelope in the database is for another member") from error
    if len(key) != KEY_BYTES or SiteSeal(key).key_id != envelope.key_id:
        raise Failed(action, "its envelope in the database has another key")
    return key


def _cipher(shared: bytes, site: str) -> AESGCM:
    # The ephemeral key is in the exchange; the context keeps it apart from other uses.
    derived = HKDF(hashes.SHA256(), KEY_BYTES, salt=None, info=_CONTEXT + site.encode())
    return AESGCM(derived.derive(shared))
