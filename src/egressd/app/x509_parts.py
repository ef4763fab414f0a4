"""The parts that all certificates which egressd makes have in common."""

from __future__ import annotations

import datetime
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import NameOID

_VALID_DAYS: Final = 3650
_VALID_FROM: Final = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
"""The start of a certificate's validity, even on a device without a clock of its own, which starts
in 1970 until it has received the time."""


def named(common: str) -> x509.Name:
    """Return a name that has only a common one."""
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


def begun(
    name: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePublicKey | rsa.RSAPublicKey,
    now: datetime.datetime,
) -> x509.CertificateBuilder:
    """Return a certificate without extensions, which ends ten years after `now`."""
    return (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(_VALID_FROM)
        .not_valid_after(max(now, _VALID_FROM) + datetime.timedelta(days=_VALID_DAYS))
    )


def pem_of(key: ec.EllipticCurvePrivateKey) -> bytes:
    """Return a private key in PEM, without a password."""
    form = serialization.PrivateFormat.PKCS8
    return key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())
