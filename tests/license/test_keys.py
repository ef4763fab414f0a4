from __future__ import annotations

import base64
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from egressd.license.keys import (
    key_id,
    key_ring,
    public_key_text,
    read_private_key,
    write_private_key,
)
from egressd.model.errors import Failed, Invalid


def test_a_written_key_is_read_back_and_readable_by_its_owner_only(tmp_path: Path) -> None:
    path = tmp_path / "vendor.key"
    key = write_private_key(path)
    assert read_private_key(path).private_bytes_raw() == key.private_bytes_raw()
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_key_is_never_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "vendor.key"
    write_private_key(path)
    before = path.read_bytes()
    with pytest.raises(Failed, match="exists"):
        write_private_key(path)
    assert path.read_bytes() == before


def test_a_key_ring_finds_keys_by_their_id(tmp_path: Path) -> None:
    first = write_private_key(tmp_path / "a").public_key()
    second = write_private_key(tmp_path / "b").public_key()
    ring = key_ring([public_key_text(first), public_key_text(second)])
    assert set(ring) == {key_id(first), key_id(second)}
    assert ring[key_id(second)].public_bytes_raw() == second.public_bytes_raw()


def test_every_invalid_pinned_key_is_named() -> None:
    good = base64.b64encode(bytes(32)).decode()
    with pytest.raises(Invalid) as caught:
        key_ring([good, "not base64!", base64.b64encode(bytes(31)).decode()])
    assert [text.split()[0] for text in caught.value.problems] == [
        "public_keys[1]",
        "public_keys[2]",
    ]


def test_a_file_without_a_usable_key_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "key"
    with pytest.raises(Failed, match="No such file"):
        read_private_key(path)
    path.write_text("nonsense")
    with pytest.raises(Failed, match="PEM"):
        read_private_key(path)
    path.write_bytes(
        X25519PrivateKey.generate().private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    with pytest.raises(Failed, match="another kind"):
        read_private_key(path)
