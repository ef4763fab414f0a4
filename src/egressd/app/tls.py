"""The certificate of the HTTPS listener: the operator's, or one made at first start."""

from __future__ import annotations

import ssl
import subprocess
from pathlib import Path

from egressd.app import network
from egressd.model.errors import Failed
from egressd.store import own_process

CERTIFICATE, KEY = "tls-certificate.pem", "tls-key.pem"
"""File names in the api's data directory. An operator puts their own there."""


def context(directory: Path) -> ssl.SSLContext:
    """Return a server's context with the pair of files in `directory`. Missing files are made: only
    the certificate if the key exists, as after a first start that was cut short.

    A certificate that is made here is for this machine's name, and for its addresses in networks
    other than the internet: it need not change when a WAN's address does. Raises Failed.
    """
    certificate, key = directory / CERTIFICATE, directory / KEY
    try:
        if not certificate.exists():
            _make(certificate, key)
        made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        made.minimum_version = ssl.TLSVersion.TLSv1_2
        made.load_cert_chain(certificate, key)
    except (OSError, ValueError) as error:
        raise Failed(f"load the certificate {certificate}", str(error)) from error
    return made


def _make(certificate: Path, key: Path) -> None:
    """Make the certificate in a process of its own: see `certificate`. Raises OSError."""
    known_by = [str(a) for a in network.own_addresses() if not a.is_global]
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
