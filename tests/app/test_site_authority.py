"""The certificates of a site, and the token by which a box joins it."""

from __future__ import annotations

import datetime
import socket
import ssl
import subprocess
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from egressd.app.join_token import JoinToken
from egressd.app.site_authority import (
    SiteAuthority,
    expiry_of,
    has_key_of,
    hosts_of,
    new_request,
    pem_of_der,
)
from egressd.model.errors import Failed, Invalid
from egressd.store.sealing import KEY_BYTES

TOKEN = JoinToken(
    database="host=192.0.2.1 dbname=egressd",
    site="home",
    role="egressd_guest_1",
    authority=b"certificate",
    secret=bytes(KEY_BYTES),
)


def handshake(folder: Path, server: SiteAuthority, host: str, client: SiteAuthority) -> str:
    """Return the subject by which a server knows its client, over TLS with both verified.

    `server` is the authority that both trust, `client` the one that made the client's certificate.
    """
    certificate, key = server.server(["192.0.2.1", "db.example"])
    own_key, request = new_request()
    for name, content in (
        ("ca", server.pem),
        ("server", certificate + key),
        ("client", client.member(request, "egressd_b").encode() + own_key),
    ):
        (folder / name).write_bytes(content)
    serving = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=folder / "ca")
    serving.verify_mode = ssl.CERT_REQUIRED
    serving.load_cert_chain(folder / "server")
    calling = ssl.create_default_context(cafile=folder / "ca")
    calling.load_cert_chain(folder / "client")
    near, far = socket.socketpair()
    seen: list[str] = []

    def serve() -> None:
        try:
            with serving.wrap_socket(far, server_side=True) as accepted:
                peer = accepted.getpeercert() or {}
                seen.append(str(peer["subject"]))
                accepted.sendall(b"x")
        except ssl.SSLError:
            far.close()

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        with calling.wrap_socket(near, server_hostname=host) as connection:
            connection.recv(1)
    finally:
        near.close()
        thread.join()
    return "".join(seen)


def test_both_ends_of_a_connection_know_each_other(tmp_path: Path) -> None:
    authority = SiteAuthority.make("home")
    for host in ("192.0.2.1", "db.example"):
        subject = handshake(tmp_path, authority, host, authority)
        assert subject == "((('commonName', 'egressd_b'),),)"


def test_a_server_of_another_name_is_refused(tmp_path: Path) -> None:
    authority = SiteAuthority.make("home")
    with pytest.raises(ssl.SSLCertVerificationError, match="not valid for"):
        handshake(tmp_path, authority, "192.0.2.2", authority)


def test_a_member_of_another_site_is_refused(tmp_path: Path) -> None:
    other = SiteAuthority.make("home")
    assert not handshake_outcome(tmp_path, SiteAuthority.make("home"), other)


def handshake_outcome(folder: Path, server: SiteAuthority, client: SiteAuthority) -> str:
    try:
        return handshake(folder, server, "192.0.2.1", client)
    except (ssl.SSLError, OSError):
        return ""


def test_openssl_verifies_the_certificates(tmp_path: Path) -> None:
    authority = SiteAuthority.make("x" * 100)
    certificate, _ = authority.server(["192.0.2.1"])
    _, request = new_request()
    files = {
        "ca": authority.pem,
        "sslserver": certificate,
        "sslclient": authority.member(request, "egressd_b").encode(),
    }
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    for purpose in ("sslserver", "sslclient"):
        argv = ["openssl", "verify", "-x509_strict", "-purpose", purpose, "-CAfile", "ca", purpose]
        done = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


def test_an_authority_is_made_once(tmp_path: Path) -> None:
    with pytest.raises(Failed, match="has none: only the box"):
        SiteAuthority.of_folder(tmp_path)
    made = SiteAuthority.of_folder(tmp_path, "home")
    assert SiteAuthority.of_folder(tmp_path, "home").pem == made.pem
    assert SiteAuthority.of_folder(tmp_path).pem == made.pem
    assert {f.name: f.stat().st_mode & 0o777 for f in tmp_path.iterdir()} == {
        "site-ca.pem": 0o600,
        "site-ca-key.pem": 0o600,
    }
    (tmp_path / "site-ca-key.pem").write_text("nonsense")
    with pytest.raises(Failed, match="read the site's authority"):
        SiteAuthority.of_folder(tmp_path)


def test_a_certificate_names_its_role_and_addresses() -> None:
    authority = SiteAuthority.make("home")
    key, request = new_request()
    certificate = authority.member(request, "egressd_b")
    ends = expiry_of(certificate)
    assert ends is not None
    assert ends > datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=3600)
    assert expiry_of("") is None
    assert has_key_of(certificate, request)
    assert not has_key_of(certificate, new_request()[1])
    assert not has_key_of("", request)
    assert b"PRIVATE" in key
    assert "PRIVATE" not in request
    assert hosts_of(authority.server(["192.0.2.1", "db.example"])[0]) == ["192.0.2.1", "db.example"]
    assert pem_of_der(authority.der) == authority.pem
    with pytest.raises(Invalid, match="cannot be read"):
        pem_of_der(b"x")


@pytest.mark.parametrize("request_text", ["", "x", "-----BEGIN CERTIFICATE REQUEST-----"])
def test_a_text_that_is_no_request_gets_no_certificate(request_text: str) -> None:
    with pytest.raises(Invalid, match="signed with its own key"):
        SiteAuthority.make("home").member(request_text, "egressd_b")


@given(st.text(), st.text(), st.binary(max_size=400), st.binary(min_size=32, max_size=32))
def test_a_token_is_read_as_it_was_made(
    database: str, site: str, authority: bytes, secret: bytes
) -> None:
    token = JoinToken(database=database, site=site, role="r", authority=authority, secret=secret)
    assert JoinToken.read(token.text) == token
    half = len(token.text) // 2
    assert JoinToken.read(f" {token.text[:half]}\n {token.text[half:]}\n") == token


@given(st.integers(0, len(TOKEN.text) - 2), st.sampled_from("xA_-é "))
def test_a_token_with_a_fault_is_refused(place: int, other: str) -> None:
    text = TOKEN.text
    for faulty in (text[:place], text[:place] + other + text[place + 1 :]):
        if faulty != text:
            with pytest.raises(Invalid, match="token must be what egressd cluster invite printed"):
                JoinToken.read(faulty)


def test_password_and_seal_of_a_token_are_unrelated() -> None:
    assert TOKEN.password != JoinToken.read(TOKEN.text).seal.key_id
    sealed = TOKEN.seal.close("a request", "place")
    assert JoinToken.read(TOKEN.text).seal.open(sealed, "place") == "a request"
    other = JoinToken(database="", site="", role="", authority=b"", secret=JoinToken.new_secret())
    with pytest.raises(ValueError, match="not sealed with"):
        other.seal.open(sealed, "place")
    assert other.password != TOKEN.password
