"""The texts that the two sides of an invitation write to each other, sealed with its token."""

from __future__ import annotations

from typing import TypeVar

import msgspec

from egressd.app.join_token import JoinToken
from egressd.model.errors import Failed

T = TypeVar("T")


class Offer(msgspec.Struct, frozen=True, kw_only=True):
    """The site's demands on a box."""

    key_id: str
    lan: tuple[str, ...]
    wan: tuple[str, ...]
    member: str = ""
    """The name that the box is to have; empty if it may choose."""


class JoinRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A description of the box, by itself."""

    member: str
    device: str
    version: str
    certificate_request: str


class JoinAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to a request."""

    refusal: str = ""
    """The reason why the box is no member; empty if it is one."""
    role: str = ""
    certificate: str = ""
    site_key: str = ""
    """The site's key in base64."""


def sealed(token: JoinToken, what: str, content: msgspec.Struct) -> str:
    """Return a text of the conversation: what it is, and its content."""
    text = msgspec.json.encode(content).decode()
    return token.seal.close(text, f"{token.role}/{what}")


def opened(token: JoinToken, what: str, stored: str, kind: type[T]) -> T:
    """Return the content of a text. Raises Failed."""
    try:
        return msgspec.json.decode(token.seal.open(stored, f"{token.role}/{what}"), type=kind)
    except (ValueError, msgspec.DecodeError) as error:
        raise Failed(f"read the {what} of the invitation", str(error)) from error
