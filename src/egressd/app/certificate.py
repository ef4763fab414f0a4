"""The process that makes the certificate of the HTTPS listener, and ends.

The library that makes it takes 10 MB, and a service needs it at its first start only.
`tls` starts it; `main` is what runs there.
"""

from __future__ import annotations

import datetime
import socket
import sys
from collections.abc import Iterable
from ipaddress import IPv4Address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import NameOID

from egressd.store.files import replace_durably

_VALID_DAYS = 3650
_VALID_FROM = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
"""The start of a certificate's validity, even on a device without a clock of its own, which starts
in 1970 until it has received the time."""


def make(certificate: Path, key: Path, known_by: Iterable[IPv4Address]) -> None:
    """Make the certificate, and the key unless it exists. Raises OSError, ValueError."""
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


def main() -> None:
    """Make what standard input names: certificate, key and addresses, one a line."""
    certificate, key, *known_by = sys.stdin.read().splitlines()
    try:
        make(Path(certificate), Path(key), map(IPv4Address, known_by))
    except (OSError, ValueError) as error:
        sys.exit(str(error))
