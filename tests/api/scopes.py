"""The endpoints of the OpenAPI document, and tokens to call them by."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.support.api_device import Device

METHODS = ("get", "post", "put", "patch", "delete")


def endpoints(document: dict[str, Any]) -> list[tuple[str, str, list[dict[str, list[str]]]]]:
    """Return method, path and security of each operation of the OpenAPI document."""
    return [
        (method, path, operation["security"])
        for path, operations in document["paths"].items()
        for method, operation in operations.items()
        if method in METHODS
    ]


async def document_of(device: Device) -> dict[str, Any]:
    response = await device.client.get("http://device/ops/openapi.json")
    document: dict[str, Any] = response.json()
    return document


def filled(path: str) -> str:
    """Return a path with values for its parameters."""
    return re.sub(
        r"\{(\w+)\}",
        lambda found: {"id": "7", "type": "l2tp", "revision": "1"}.get(found[1], "x"),
        path,
    )


async def token_of(device: Device, *scopes: str) -> str:
    secret, _ = await device.tokens.create("+".join(scopes), scopes, None, "a test")
    return secret
