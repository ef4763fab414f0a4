"""The lab's certificate authority, checked by its strictest client: Python 3.13."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest

from egressd_lab.authority import Authority


def shake_hands(authority: Authority, named: str, *, trusted: Path) -> None:
    """Connect a strict client to a server with a certificate for ``site.test`` and an address."""
    theirs = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    theirs.load_cert_chain(*authority.certificate("site.test", ["127.0.0.1"]))
    ours = ssl.create_default_context(cafile=str(trusted))
    ours.verify_flags |= ssl.VERIFY_X509_STRICT | ssl.VERIFY_X509_PARTIAL_CHAIN
    up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = ours.wrap_bio(down, up, server_hostname=named)
    server = theirs.wrap_bio(up, down, server_side=True)
    for end in (client, server, client, server):
        try:
            end.do_handshake()
        except ssl.SSLWantReadError:
            continue
    assert client.getpeercert()


@pytest.mark.parametrize("named", ["site.test", "127.0.0.1"])
def test_certificates_of_the_authority_pass_strict_verification(tmp_path: Path, named: str) -> None:
    authority = Authority(tmp_path)
    shake_hands(authority, named, trusted=authority.file)


def test_a_certificate_of_a_non_strict_authority_fails_verification(tmp_path: Path) -> None:
    authority = Authority(tmp_path, strict=False)
    with pytest.raises(ssl.SSLCertVerificationError, match="CERTIFICATE_VERIFY_FAILED"):
        shake_hands(authority, "site.test", trusted=authority.file)


def test_a_certificate_of_another_authority_is_not_trusted(tmp_path: Path) -> None:
    folders = tmp_path / "one", tmp_path / "other"
    for folder in folders:
        folder.mkdir()
    authority, other = map(Authority, folders)
    with pytest.raises(ssl.SSLCertVerificationError, match="CERTIFICATE_VERIFY_FAILED"):
        shake_hands(authority, "site.test", trusted=other.file)
