"""The certificate of the HTTPS listener: the operator's, or one made at first start."""

from __future__ import annotations

import datetime
import socket
import ssl
from collections.abc import Iterable
from ipaddress import IPv4Address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import NameOID

from egressd.app import network
from egressd.model.errors import Failed
from egressd.store.files import replace_durably

CERTIFICATE, KEY = "tls-certificate.pem", "tls-key.pem"
"""File names in the api's data directory. An operator puts their own there."""

_VALID_DAYS = 3650
_VALID_FROM = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
"""The start of a certificate's validity, even on a device without a clock of its own, which starts
in 1970 until it has received the time."""


def context(directory: Path) -> ssl.SSLContext:
    """Return a server's context with the pair of files in `directory`. Missing files are made: only
    the certificate if the key exists, as after a first start that was cut short.

    A certificate that is made here is for this machine's name, and for its addresses in networks
    other than the internet: it need not change when a WAN's address does. Raises Failed.
    """
    certificate, key = directory / CERTIFICATE, directory / KEY
    try:
        if not certificate.exists():
            _make(certificate, key, [a for a in network.own_addresses() if not a.is_global])
        made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        made.minimum_version = ssl.TLSVersion.TLSv1_2
        made.load_cert_chain(certificate, key)
    except (OSError, ValueError) as error:
        raise Failed(f"load the certificate {certificate}", str(error)) from error
    return made


def _make(certificate: Path, key: Path, known_by: Iterable[IPv4Address]) -> None:
    private = _key(key)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "egressd")])
    now = max(_now(), _VALID_FROM)
    known: list[x509.GeneralName] = [
        x509.DNSName("localhost"),
        *(x509.IPAddress(address) for address in known_by),
    ]
    host = socket.gethostname()
    if host.isascii() and host != "localhost":
        known.append(x509.DNSName(host))
    built = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(private.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(_VALID_FROM)
        .not_valid_after(now + datetime.timedelta(days=_VALID_DAYS))
        .add_extension(x509.SubjectAlternativeName(known), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .sign(private, hashes.SHA256())
    )
    replace_durably(certificate, built.public_bytes(serialization.Encoding.PEM))


def _key(file: Path) -> ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey:
    """Return the private key of `file`; it is made if missing. Raises OSError, ValueError."""
    if file.exists():
        found = serialization.load_pem_private_key(file.read_bytes(), None)
        if not isinstance(found, ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey):
            raise ValueError(f"there is none, and {file.name} is no key that one is made for")
        return found
    made = ec.generate_private_key(ec.SECP256R1())
    form = serialization.PrivateFormat.PKCS8
    text = made.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())
    replace_durably(file, text)
    return made


def _now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)
