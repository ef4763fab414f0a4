"""The certificates of a site: its authority, the database's, and those of the members.

PostgreSQL takes a member's certificate in place of a password: its common name is the member's
role (PostgreSQL's documentation, 21.12). Members know the database by its host names and addresses.
A member is shut out by its role, not by its certificate, which is valid for ten years.
"""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID

from egressd.app.x509_parts import begun, named, pem_of
from egressd.model.errors import Failed, Invalid
from egressd.store.files import replace_durably

CERTIFICATE, KEY = "site-ca.pem", "site-ca-key.pem"
"""File names in the authority's folder."""


class SiteAuthority:
    """The authority that signs a site's certificates. Its key stays on the box that made it."""

    def __init__(self, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> None:
        self.certificate = certificate
        self._key = key

    @classmethod
    def make(cls, site: str) -> SiteAuthority:
        """Return a new authority."""
        key = ec.generate_private_key(ec.SECP256R1())
        # X.509 has room for 64 characters.
        name = named(f"egressd {site}"[:64])
        built = (
            _builder(name, name, key.public_key(), key.public_key())
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_usage(is_authority=True), critical=True)
            .sign(key, hashes.SHA256())
        )
        return cls(built, key)

    @classmethod
    def of_folder(cls, folder: Path, site: str = "") -> SiteAuthority:
        """Return the authority in `folder`; with `site`, one is made if there is none.

        Raises Failed.
        """
        action = "read the site's authority"
        try:
            if site and not (folder / CERTIFICATE).exists():
                made = cls.make(site)
                # The certificate is last: a half-made authority is made again.
                replace_durably(folder / KEY, pem_of(made._key))
                replace_durably(folder / CERTIFICATE, made.pem)
            certificate = x509.load_pem_x509_certificate((folder / CERTIFICATE).read_bytes())
            key = serialization.load_pem_private_key((folder / KEY).read_bytes(), None)
        except FileNotFoundError:
            raise Failed(
                action,
                f"{folder} has none: only the box where egressd cluster init was run invites",
            ) from None
        except (OSError, ValueError) as error:
            raise Failed(action, str(error)) from error
        if not isinstance(key, ec.EllipticCurvePrivateKey):
            raise Failed(action, f"{folder / KEY} is no key on an elliptic curve")
        return cls(certificate, key)

    @property
    def pem(self) -> bytes:
        """The authority's certificate."""
        return self.certificate.public_bytes(serialization.Encoding.PEM)

    @property
    def der(self) -> bytes:
        """The authority's certificate, in DER."""
        return self.certificate.public_bytes(serialization.Encoding.DER)

    def server(self, hosts: Sequence[str]) -> tuple[bytes, bytes]:
        """Return certificate and key, in PEM, of a server that is known by `hosts`."""
        key = ec.generate_private_key(ec.SECP256R1())
        known = x509.SubjectAlternativeName([_general_name(host) for host in hosts])
        built = (
            self._builder(named("egressd database"), key.public_key(), is_server=True)
            .add_extension(known, critical=False)
            .sign(self._key, hashes.SHA256())
        )
        return built.public_bytes(serialization.Encoding.PEM), pem_of(key)

    def member(self, request: str, role: str) -> str:
        """Return the certificate, in PEM, of the member that makes a request, for its role.

        Raises Invalid for a text that is no request of a box that has the key.
        """
        try:
            asked = x509.load_pem_x509_csr(request.encode())
        except ValueError:
            asked = None
        if asked is None or not asked.is_signature_valid:
            raise Invalid("the request must be signed with its own key")
        key = asked.public_key()
        if not isinstance(key, ec.EllipticCurvePublicKey):
            raise Invalid("the request's key must be on an elliptic curve")
        built = self._builder(named(role), key, is_server=False).sign(self._key, hashes.SHA256())
        return built.public_bytes(serialization.Encoding.PEM).decode()

    def has_issued(self, certificate: str, role: str) -> bool:
        """True if a certificate in PEM is this authority's, for a member with that role."""
        try:
            found = x509.load_pem_x509_certificate(certificate.encode())
            found.verify_directly_issued_by(self.certificate)
        except (ValueError, TypeError, InvalidSignature):
            return False
        return found.subject == named(role)

    def sign(self, content: bytes) -> bytes:
        """Return the authority's signature (ECDSA with SHA-256, FIPS 186-5)."""
        return self._key.sign(content, ec.ECDSA(hashes.SHA256()))

    def _builder(
        self, name: x509.Name, key: ec.EllipticCurvePublicKey, *, is_server: bool
    ) -> x509.CertificateBuilder:
        purpose = ExtendedKeyUsageOID.SERVER_AUTH if is_server else ExtendedKeyUsageOID.CLIENT_AUTH
        return (
            _builder(name, self.certificate.subject, key, self._key.public_key())
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(is_authority=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage([purpose]), critical=False)
        )


def new_request() -> tuple[bytes, str]:
    """Return a new private key and a request for its certificate, both in PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    # The site's authority names the certificate.
    asked = x509.CertificateSigningRequestBuilder().subject_name(x509.Name([]))
    request = asked.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
    return pem_of(key), request.decode()


def pem_of_der(der: bytes) -> bytes:
    """Return a certificate in PEM. Raises Invalid."""
    try:
        certificate = x509.load_der_x509_certificate(der)
    except ValueError:
        raise Invalid("the site's certificate cannot be read") from None
    return certificate.public_bytes(serialization.Encoding.PEM)


def has_signed(authority: bytes, content: bytes, signature: bytes) -> bool:
    """True if the authority, whose certificate is given in PEM, has signed `content`."""
    key = x509.load_pem_x509_certificate(authority).public_key()
    assert isinstance(key, ec.EllipticCurvePublicKey)
    try:
        key.verify(signature, content, ec.ECDSA(hashes.SHA256()))
    except InvalidSignature:
        return False
    return True


def expiry_of(certificate: str) -> datetime.datetime | None:
    """Return when a certificate in PEM ends, or None for a text that is none."""
    try:
        return x509.load_pem_x509_certificate(certificate.encode()).not_valid_after_utc
    except ValueError:
        return None


def hosts_of(certificate: bytes) -> list[str]:
    """Return the names and addresses that a server's certificate in PEM is for."""
    found = x509.load_pem_x509_certificate(certificate)
    names = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    return [str(name.value) for name in names]


def has_key_of(certificate: str, request: str) -> bool:
    """True if a certificate and a request are of the same key."""
    try:
        key = x509.load_pem_x509_certificate(certificate.encode()).public_key()
        return key == x509.load_pem_x509_csr(request.encode()).public_key()
    except ValueError:
        return False


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _builder(
    name: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePublicKey,
    issuers_key: ec.EllipticCurvePublicKey,
) -> x509.CertificateBuilder:
    return (
        begun(name, issuer, key, datetime.datetime.now(datetime.UTC))
        # Strict verifiers, such as Python's own from 3.13 on, want both.
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(issuers_key), critical=False
        )
    )


def _usage(*, is_authority: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not is_authority,
        key_cert_sign=is_authority,
        crl_sign=is_authority,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )
