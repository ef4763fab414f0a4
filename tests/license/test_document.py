from __future__ import annotations

import base64

import msgspec
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given
from hypothesis import strategies as st

from egressd.license.document import CAPABILITIES, LICENSE_VERSION, License, Untrusted, read, sign
from egressd.license.keys import key_id, key_ring, public_key_text

KEY = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
OTHER_KEY = Ed25519PrivateKey.from_private_bytes(bytes(range(1, 33)))
TRUSTED = key_ring([public_key_text(OTHER_KEY.public_key()), public_key_text(KEY.public_key())])

LICENSE = License(
    version=LICENSE_VERSION,
    serial="5f0c",
    device="0123-4567-89ab-cdef",
    capabilities=("api", "line_dns"),
    proxy_service_quota=100,
    api_trial_calls=0,
    issued_at="2026-11-20T22:58:40Z",
    expires_at="2027-11-21T00:00:00Z",
)
FILE = sign(LICENSE, KEY)

licenses = st.builds(
    License,
    version=st.just(LICENSE_VERSION),
    serial=st.text(max_size=20),
    device=st.text(max_size=40),
    capabilities=st.lists(st.sampled_from(CAPABILITIES), unique=True).map(tuple),
    proxy_service_quota=st.integers(0, 10**6),
    api_trial_calls=st.integers(0, 10**6),
    issued_at=st.just("2026-11-20T22:58:40Z"),
    expires_at=st.sampled_from(["", "2027-11-21T00:00:00Z"]),
)


def resigned(payload: bytes, key: Ed25519PrivateKey = KEY) -> bytes:
    return msgspec.json.encode(
        {
            "kid": key_id(key.public_key()),
            "payload": base64.b64encode(payload).decode(),
            "signature": base64.b64encode(key.sign(payload)).decode(),
        }
    )


@given(licenses)
def test_a_signed_license_is_read_back(license_: License) -> None:
    assert read(sign(license_, KEY), TRUSTED) == license_


def test_any_pinned_key_may_sign() -> None:
    assert read(sign(LICENSE, OTHER_KEY), TRUSTED) == LICENSE


@given(st.integers(0, len(FILE) - 1), st.integers(1, 255))
def test_a_changed_byte_never_gives_another_license(position: int, flip: int) -> None:
    changed = bytearray(FILE)
    changed[position] ^= flip
    try:
        found = read(bytes(changed), TRUSTED)
    except Untrusted:
        return
    assert found == LICENSE  # white space of the envelope, which carries no meaning


@pytest.mark.parametrize("length", range(0, len(FILE) - 2, 7))
def test_a_truncated_file_is_refused(length: int) -> None:
    with pytest.raises(Untrusted):
        read(FILE[:length], TRUSTED)


@given(st.binary(max_size=300))
def test_random_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(Untrusted):
        read(data, TRUSTED)


def test_a_changed_payload_under_the_old_signature_is_refused() -> None:
    envelope = msgspec.json.decode(FILE)
    payload = base64.b64decode(envelope["payload"])
    richer = payload.replace(b'"proxy_service_quota":100', b'"proxy_service_quota":999')
    assert richer != payload
    envelope["payload"] = base64.b64encode(richer).decode()
    with pytest.raises(Untrusted, match="changed after signing"):
        read(msgspec.json.encode(envelope), TRUSTED)


def test_a_key_that_is_not_pinned_is_refused() -> None:
    foreign = sign(LICENSE, Ed25519PrivateKey.generate())
    with pytest.raises(Untrusted, match="does not trust"):
        read(foreign, TRUSTED)


def test_a_foreign_signature_under_a_pinned_key_id_is_refused() -> None:
    envelope = msgspec.json.decode(sign(LICENSE, Ed25519PrivateKey.generate()))
    envelope["kid"] = key_id(KEY.public_key())
    with pytest.raises(Untrusted, match="changed after signing"):
        read(msgspec.json.encode(envelope), TRUSTED)


def test_nothing_is_trusted_without_pinned_keys() -> None:
    with pytest.raises(Untrusted):
        read(FILE, key_ring([]))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b'"version":1', b'"version":2'),
        (b'"expires_at":"2027-11-21T00:00:00Z"', b'"expires_at":"tomorrow"'),
        (b'"expires_at":"2027-11-21T00:00:00Z"', b'"expires_at":"2027-11-21T00:00:00"'),
        (b'"serial":"5f0c"', b'"serial":"5f0c","later":1'),
        (b'"proxy_service_quota":100', b'"proxy_service_quota":"100"'),
    ],
)
def test_a_signed_payload_of_another_form_is_refused(old: bytes, new: bytes) -> None:
    payload = msgspec.json.encode(LICENSE)
    assert old in payload
    with pytest.raises(Untrusted):
        read(resigned(payload.replace(old, new)), TRUSTED)


def test_a_huge_file_is_refused_without_parsing() -> None:
    with pytest.raises(Untrusted, match="larger"):
        read(FILE + b" " * 70_000, TRUSTED)
