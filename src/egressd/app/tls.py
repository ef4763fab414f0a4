"""The certificate of the HTTPS listener: the operator's, or one made at first start."""

from __future__ import annotations

import ssl
import subprocess
from collections.abc import Iterable
from ipaddress import IPv4Address
from pathlib import Path

from egressd.app import network
from egressd.model.errors import Failed
from egressd.store import own_process

CERTIFICATE, KEY = "tls-certificate.pem", "tls-key.pem"
"""File names in the api's data directory. An operator puts their own there."""


def context(directory: Path, wanted: Iterable[IPv4Address] = ()) -> ssl.SSLContext:
    """Return a server's context with the pair of files in `directory`. Missing files are made: only
    the certificate if the key exists, as after a first start that was cut short.

    A certificate that is made here is for this machine's name, and for its addresses in networks
    other than the internet: it need not change when a WAN's address does. `wanted` are addresses
    that it must be for: one that was made without one of them is made again, with the same key.
    Raises Failed.
    """
    certificate, key = directory / CERTIFICATE, directory / KEY
    private = [address for address in wanted if not address.is_global]
    try:
        if not certificate.exists() or _lacks(certificate, private):
            _make(certificate, key, private)
        made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        made.minimum_version = ssl.TLSVersion.TLSv1_2
        made.load_cert_chain(certificate, key)
    except (OSError, ValueError) as error:
        raise Failed(f"load the certificate {certificate}", str(error)) from error
    return made


def _lacks(certificate: Path, wanted: list[IPv4Address]) -> bool:
    """True if the certificate is to be made again for these addresses. Raises OSError, ValueError.

    The library is imported here: only a member of a site has it in memory anyway.
    """
    if not wanted:
        return False
    from egressd.app.certificate import lacks

    return lacks(certificate.read_bytes(), wanted)


def _make(certificate: Path, key: Path, more: list[IPv4Address]) -> None:
    """Make the certificate in a process of its own: see `certificate`. Raises OSError."""
    own = [address for address in network.own_addresses() if not address.is_global]
    known_by = map(str, dict.fromkeys((*own, *more)))
    done = subprocess.run(
        own_process.command("egressd.app.certificate"),
        input="\n".join((str(certificate.absolute()), str(key.absolute()), *known_by)),
        stderr=subprocess.PIPE,
        env=own_process.ENVIRONMENT,
        text=True,
        check=False,
    )
    if done.returncode:
        told = done.stderr.strip().splitlines()
        raise OSError(told[-1] if told else f"its maker ended with {done.returncode}")
