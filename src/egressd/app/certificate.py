"""The process that makes the certificate of the HTTPS listener, and ends.

The library that makes it takes 10 MB, and a service needs it at its first start only.
`tls` starts it; `main` is what runs there.
"""

from __future__ import annotations

import datetime
import socket
import sys
from collections.abc import Collection, Iterable
from ipaddress import IPv4Address
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from egressd.app.x509_parts import begun, named, pem_of
from egressd.store.files import replace_durably

_NAME: Final = named("egressd")
"""Subject and issuer of a certificate that is made here."""


def make(certificate: Path, key: Path, known_by: Iterable[IPv4Address]) -> None:
    """Make the certificate, and the key unless it exists. A certificate that was made here before
    is replaced, and its names stay. Raises OSError, ValueError.
    """
    private = _key(key)
    known: list[x509.GeneralName] = [
        *(_names(certificate.read_bytes()) if certificate.exists() else ()),
        x509.DNSName("localhost"),
        *(x509.IPAddress(address) for address in known_by),
    ]
    host = socket.gethostname()
    if host.isascii() and host != "localhost":
        known.append(x509.DNSName(host))
    names = x509.SubjectAlternativeName(dict.fromkeys(known))
    built = (
        begun(_NAME, _NAME, private.public_key(), _now())
        .add_extension(names, critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .sign(private, hashes.SHA256())
    )
    replace_durably(certificate, built.public_bytes(serialization.Encoding.PEM))


def lacks(pem: bytes, wanted: Collection[IPv4Address]) -> bool:
    """True if a certificate was made here and is not for all of these addresses. An operator's own
    lacks nothing. Raises ValueError.
    """
    if not wanted or not is_made_here(pem):
        return False
    names = x509.SubjectAlternativeName(_names(pem))
    return not set(wanted).issubset(names.get_values_for_type(x509.IPAddress))


def is_made_here(pem: bytes) -> bool:
    """True if a certificate was made by `make`. Raises ValueError."""
    found = x509.load_pem_x509_certificate(pem)
    return found.subject == found.issuer == _NAME


def _names(pem: bytes) -> list[x509.GeneralName]:
    """Return the names of a certificate that was made here. Raises ValueError."""
    found = x509.load_pem_x509_certificate(pem)
    extension = found.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    return list(extension.value)


def _key(file: Path) -> ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey:
    """Return the private key of `file`; it is made if missing. Raises OSError, ValueError."""
    if file.exists():
        found = serialization.load_pem_private_key(file.read_bytes(), None)
        if not isinstance(found, ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey):
            raise ValueError(f"there is none, and {file.name} is no key that one is made for")
        return found
    made = ec.generate_private_key(ec.SECP256R1())
    replace_durably(file, pem_of(made))
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
