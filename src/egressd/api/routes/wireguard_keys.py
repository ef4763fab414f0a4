"""``/ops/wireguard-keys``: new keys for nodes of WireGuard."""

from __future__ import annotations

from typing import Annotated, Final

from msgspec import Meta
from starlette.responses import Response

from egressd.api.endpoints import OPS_PREFIX
from egressd.api.routers import Router
from egressd.api.wire.answers import Answer, reply
from egressd.api.wire.operations import Nothing
from egressd.service.wireguard_keys import new_key_pair

router: Final = Router("Operations", OPS_PREFIX)


class WireguardKey(Answer, frozen=True, kw_only=True):
    """A new key: 32 bytes each in base64."""

    private: Annotated[str, Meta(description="For the node's `private-key`.")]
    public: Annotated[str, Meta(description="For the node's server.")]


@router.post(
    "/wireguard-keys",
    "Make a key of WireGuard",
    body={},
    answer=WireguardKey,
    example={
        "private": "GHuMwljFfqd2a7cs6BaUOmHflK23zME8VNvC5B37S3k=",
        "public": "aPxGwq8zERHQ3Q1cOZFdJ+cvJX5Ka4mLN38AyYKYF10=",
    },
    scope="write",
)
async def make_wireguard_key(body: Nothing) -> Response:
    """It is kept nowhere."""
    del body
    return reply(WireguardKey(**new_key_pair()._asdict()))
