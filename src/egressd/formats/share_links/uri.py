"""``scheme://user@host:port/?query#name``, the shape that most share links have.

Read by hand: ``urllib`` forbids the port lists of Hysteria2 and drops characters that it
takes for a slip.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import quote, unquote, unquote_plus

import msgspec

from egressd.formats.rows import Unreadable

_PARAMETERS_MAX: Final = 64


class Uri(msgspec.Struct, frozen=True, kw_only=True):
    """A share link's parts, percent-decoded but for ``user``; an IPv6 host without brackets."""

    scheme: str
    user: str
    host: str
    port: str
    query: dict[str, str]
    name: str

    def text(self, key: str, *others: str) -> str:
        """The first of the parameters that is given and not empty, or an empty string."""
        return next((self.query[k] for k in (key, *others) if self.query.get(k)), "")

    def render(self) -> str:
        """The link. Parameters without a value are left out."""
        parameters = "&".join(f"{key}={encoded(v)}" for key, v in self.query.items() if v)
        host = f"[{self.host}]" if ":" in self.host else self.host
        return (
            f"{self.scheme}://{self.user}{'@' if self.user else ''}{host}:{self.port}"
            f"{'?' if parameters else ''}{parameters}#{encoded(self.name)}"
        )


def split(text: str) -> Uri:
    """Take a link apart. Raises Unreadable."""
    scheme, _, rest = text.partition("://")
    rest, _, fragment = rest.partition("#")
    rest, _, query = rest.partition("?")
    authority, _, path = rest.partition("/")
    if path:
        raise Unreadable(
            "the link must have no path (write / in a password as %2F; "
            "a subscription's address is not a node)"
        )
    user, _, address = authority.rpartition("@")
    if address.startswith("["):
        host, closed, port = address[1:].partition("]")
        if not closed or (port and not port.startswith(":")):
            raise Unreadable("server must be a host name or an IP address")
        port = port.removeprefix(":")
    else:
        host, _, port = address.partition(":")
    return Uri(
        scheme=scheme.lower(),
        user=user,
        host=decoded(host),
        port=port,
        query=_query(query),
        name=decoded(fragment),
    )


def link_to(
    scheme: str, user: str, fields: Mapping[str, Any], query: dict[str, str], name: str
) -> str:
    """A link to a node's server. `user` is given as it stands in the link."""
    return Uri(
        scheme=scheme,
        user=user,
        host=fields["server"],
        port=fields["ports"] if "ports" in fields else str(fields["port"]),
        query=query,
        name=name,
    ).render()


def decoded(text: str) -> str:
    """`text` without percent escapes. Raises Unreadable when they are no UTF-8."""
    try:
        return unquote(text, errors="strict")
    except UnicodeError as error:
        raise Unreadable("the link's % escapes must be UTF-8") from error


def encoded(text: str) -> str:
    """`text` with all but unreserved characters (RFC 3986) escaped."""
    return quote(text, safe="")


def user_and_password(user: str, *, may_be_base64: bool = False) -> tuple[str, str]:
    """``user:password`` decoded; the password is empty when there is no colon.

    v2rayN escapes the whole, its colon or the signs of its base64 included.
    """
    if ":" in user:
        name, _, password = user.partition(":")
        return decoded(name), decoded(password)
    plain = decoded(user)
    if may_be_base64 and ":" in (unpacked := from_base64(plain) or ""):
        plain = unpacked
    name, _, password = plain.partition(":")
    return name, password


def from_base64(text: str) -> str | None:
    """The text that base64 (either alphabet, padded or not) stands for; None if it is none."""
    plain = text.strip().rstrip("=").replace("-", "+").replace("_", "/")
    try:
        return b64decode(plain + "=" * (-len(plain) % 4), validate=True).decode()
    except ValueError:
        return None


def to_base64(text: str, *, url_safe: bool = False) -> str:
    """`text` in base64; the URL-safe alphabet goes without padding."""
    made = b64encode(text.encode()).decode()
    return made.rstrip("=").replace("+", "-").replace("/", "_") if url_safe else made


def port_or(text: str, default: int | None = None) -> int | str:
    """The port's number. What is no number comes back as it is, for the field's check to refuse."""
    if not text and default is not None:
        return default
    return int(text) if text.isdecimal() and text.isascii() and len(text) <= 5 else text


def _query(text: str) -> dict[str, str]:
    """Parameters by name; the first one counts. A plus is a space, as Go's and Java's make it."""
    made: dict[str, str] = {}
    parts = text.split("&", _PARAMETERS_MAX) if text else []
    if len(parts) > _PARAMETERS_MAX:
        raise Unreadable(f"the link must not have over {_PARAMETERS_MAX} parameters")
    try:
        for part in parts:
            key, _, value = part.partition("=")
            made.setdefault(unquote_plus(key), unquote_plus(value, errors="strict"))
    except UnicodeError as error:
        raise Unreadable("the link's % escapes must be UTF-8") from error
    return made
