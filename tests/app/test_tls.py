"""The certificate that a device makes for itself."""

from __future__ import annotations

import datetime
import ssl
import subprocess
from ipaddress import IPv4Address
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from egressd.app import tls
from egressd.app.certificate import make
from egressd.app.x509_parts import begun, named, pem_of
from egressd.model.errors import Failed
from tests.support.netns import Namespace

_ED25519 = (
    Ed25519PrivateKey.generate()
    .private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    .decode()
)


def certificate(folder: Path) -> x509.Certificate:
    return x509.load_pem_x509_certificate((folder / tls.CERTIFICATE).read_bytes())


def addresses(folder: Path) -> list[IPv4Address]:
    names = certificate(folder).extensions.get_extension_for_class(x509.SubjectAlternativeName)
    return [IPv4Address(str(a)) for a in names.value.get_values_for_type(x509.IPAddress)]


def test_the_certificate_is_created_once(tmp_path: Path) -> None:
    assert isinstance(tls.context(tmp_path), ssl.SSLContext)
    first = (tmp_path / tls.CERTIFICATE).read_bytes()
    tls.context(tmp_path)
    assert (tmp_path / tls.CERTIFICATE).read_bytes() == first
    assert IPv4Address("127.0.0.1") in addresses(tmp_path)


@pytest.mark.lab
def test_the_certificate_covers_addresses_in_local_networks(tmp_path: Path) -> None:
    def body() -> None:
        for index in range(70):
            subprocess.run(["ip", "link", "add", f"lan{index}", "type", "ifb"], check=True)
            address = f"192.168.{index}.1/24"
            subprocess.run(["ip", "address", "add", address, "dev", f"lan{index}"], check=True)
        for address in ("10.7.0.1/24", "100.64.0.1/10", "8.8.8.1/24"):
            subprocess.run(["ip", "address", "add", address, "dev", "lan0"], check=True)
        subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
        tls.context(tmp_path)

    with Namespace() as namespace:
        namespace.run(body)
    expected = {IPv4Address(f"192.168.{index}.1") for index in range(70)}
    expected |= {IPv4Address(a) for a in ("10.7.0.1", "100.64.0.1", "127.0.0.1")}
    assert set(addresses(tmp_path)) == expected


def test_a_certificate_created_in_1970_is_valid_today(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    today = datetime.datetime.now(datetime.UTC)
    beginning = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
    monkeypatch.setattr("egressd.app.certificate._now", lambda: beginning)
    make(tmp_path / tls.CERTIFICATE, tmp_path / tls.KEY, [])
    made = certificate(tmp_path)
    assert made.not_valid_before_utc < today < made.not_valid_after_utc


def test_a_missing_certificate_is_created_for_the_existing_key(tmp_path: Path) -> None:
    tls.context(tmp_path)
    key = (tmp_path / tls.KEY).read_bytes()
    (tmp_path / tls.CERTIFICATE).unlink()
    tls.context(tmp_path)  # it would refuse a certificate of another key
    assert (tmp_path / tls.KEY).read_bytes() == key


def test_a_certificate_without_the_shared_addresses_is_made_again(tmp_path: Path) -> None:
    tls.context(tmp_path)
    key, before = (tmp_path / tls.KEY).read_bytes(), addresses(tmp_path)
    shared = [IPv4Address("10.77.0.1"), IPv4Address("8.8.8.8")]
    tls.context(tmp_path, shared)
    assert set(addresses(tmp_path)) == {*before, IPv4Address("10.77.0.1")}
    assert (tmp_path / tls.KEY).read_bytes() == key
    made = (tmp_path / tls.CERTIFICATE).read_bytes()
    tls.context(tmp_path, shared)
    assert (tmp_path / tls.CERTIFICATE).read_bytes() == made


def test_names_of_a_former_certificate_stay(tmp_path: Path) -> None:
    make(tmp_path / tls.CERTIFICATE, tmp_path / tls.KEY, [IPv4Address("10.77.0.3")])
    tls.context(tmp_path, [IPv4Address("10.77.0.1")])
    assert {IPv4Address("10.77.0.3"), IPv4Address("10.77.0.1")} < set(addresses(tmp_path))


def test_a_certificate_of_the_operator_stays(tmp_path: Path) -> None:
    name, key = named("gateway.example.net"), ec.generate_private_key(ec.SECP256R1())
    now = datetime.datetime.now(datetime.UTC)
    theirs = begun(name, name, key.public_key(), now).sign(key, SHA256()).public_bytes(Encoding.PEM)
    (tmp_path / tls.CERTIFICATE).write_bytes(theirs)
    (tmp_path / tls.KEY).write_bytes(pem_of(key))
    tls.context(tmp_path, [IPv4Address("10.77.0.1")])
    assert (tmp_path / tls.CERTIFICATE).read_bytes() == theirs


def test_an_unusable_key_is_reported_and_kept(tmp_path: Path) -> None:
    for text in ("no key at all", _ED25519):
        (tmp_path / tls.KEY).write_text(text)
        with pytest.raises(Failed, match=tls.CERTIFICATE):
            tls.context(tmp_path)
        assert (tmp_path / tls.KEY).read_text() == text


def test_a_certificate_without_its_key_is_reported(tmp_path: Path) -> None:
    tls.context(tmp_path)
    (tmp_path / tls.KEY).unlink()
    with pytest.raises(Failed, match=tls.CERTIFICATE):
        tls.context(tmp_path)
