"""The lab's own certificate authority, made anew for each lab.

Its certificates pass strict verification (``X509_V_FLAG_X509_STRICT`` in
X509_VERIFY_PARAM_set_flags(3)), which is the default of Python 3.13.
"""

from __future__ import annotations

import datetime
import ipaddress
from collections.abc import Sequence
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_VALID = datetime.timedelta(days=30)
_NOT_BEFORE = datetime.timedelta(days=1)
_SIGNS_CERTIFICATES = x509.KeyUsage(
    key_cert_sign=True,
    crl_sign=True,
    digital_signature=False,
    content_commitment=False,
    key_encipherment=False,
    data_encipherment=False,
    key_agreement=False,
    encipher_only=False,
    decipher_only=False,
)


class Authority:
    """Signs certificates for the lab's servers. Its own certificate is in ``ca.pem`` of the folder.

    An authority that is not `strict` lacks extensions that RFC 5280 requires (key usage, key
    identifiers), as self-made authorities often do.
    """

    def __init__(self, folder: Path, *, strict: bool = True) -> None:
        self._strict = strict
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _name("egressd lab")
        self.file = folder / "ca.pem"
        builder = _builder(self._name, self._name, self._key.public_key()).add_extension(
            x509.BasicConstraints(ca=True, path_length=0), critical=True
        )
        if strict:
            identifier = x509.SubjectKeyIdentifier.from_public_key(self._key.public_key())
            builder = builder.add_extension(_SIGNS_CERTIFICATES, critical=True)
            builder = builder.add_extension(identifier, critical=False)
        certificate = builder.sign(self._key, hashes.SHA256())
        self.file.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))

    def certificate(self, name: str, others: Sequence[str] = ()) -> tuple[Path, Path]:
        """Make a certificate for `name` and the `others`, names or addresses. Return its file and
        its key's file.
        """
        key = ec.generate_private_key(ec.SECP256R1())
        alternatives = x509.SubjectAlternativeName([_alternative(n) for n in (name, *others)])
        builder = (
            _builder(_name(name), self._name, key.public_key())
            .add_extension(alternatives, critical=False)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        )
        if self._strict:
            own, issuers = key.public_key(), self._key.public_key()
            builder = builder.add_extension(
                x509.SubjectKeyIdentifier.from_public_key(own), critical=False
            ).add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(issuers), critical=False
            )
        certificate = builder.sign(self._key, hashes.SHA256())
        certificate_file = self._folder / f"{name}.pem"
        key_file = self._folder / f"{name}.key"
        certificate_file.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        key_file.touch(mode=0o600)
        key_file.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
        )
        return certificate_file, key_file


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _alternative(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _NOT_BEFORE)
        .not_valid_after(now + _VALID)
    )
