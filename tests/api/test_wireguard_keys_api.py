"""``/ops/wireguard-keys``."""

from __future__ import annotations

from base64 import b64decode, b64encode
from typing import TYPE_CHECKING

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

if TYPE_CHECKING:
    from tests.support.api_device import Device


async def test_each_key_is_a_new_pair_and_kept_nowhere(device: Device) -> None:
    made = [await device.client.post("/ops/wireguard-keys", json={}) for _ in range(2)]
    assert [each.status_code for each in made] == [200, 200]
    one, other = (each.json() for each in made)
    private = X25519PrivateKey.from_private_bytes(b64decode(one["private"]))
    assert b64encode(private.public_key().public_bytes_raw()).decode() == one["public"]
    assert one["private"] != other["private"]
    assert made[0].headers["cache-control"] == "no-store"
    assert one["private"] not in (await device.client.get("/ops/changes")).text
