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

from egressd.app.x509_parts import begun, named, pem_of
from egressd.store.files import replace_durably


def make(certificate: Path, key: Path, known_by: Iterable[IPv4Address]) -> None:
    """Make the certificate, and the key unless it exists. Raises OSError, ValueError."""
    private = _key(key)
    name = named("egressd")
    known: list[x509.GeneralName] = [
        x509.DNSName("localhost"),
        *(x509.IPAddress(address) for address in known_by),
    ]
    host = socket.gethostname()
    if host.isascii() and host != "localhost":
        known.append(x509.DNSName(host))
    built = (
        begun(name, name, private.public_key(), _now())
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
