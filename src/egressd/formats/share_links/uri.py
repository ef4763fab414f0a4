"""``scheme://user@host:port/?query#name``, the shape of most share links.

``urllib`` is not used, since it forbids the port lists of Hysteria2 and drops characters that it
takes for mistakes.
"""

from __future__ import annotations

import re
from base64 import b64decode, b64encode
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import quote, unquote

import msgspec

from egressd.formats.hosts import is_address
from egressd.formats.rows import Unreadable, trimmed
from egressd.formats.share_links.parameters import Parameters, parameters_of
from egressd.model.wording import Sentence, say

_AMPERSAND: Final = re.compile(r"&(?:amp|#0*38|#x0*26);|\\u0026", re.IGNORECASE)
_ESCAPED_MAX: Final = 3
"""Levels of escapes that are removed from an ampersand."""
_ADDRESS: Final = re.compile(r"(?:.*@)?[^@/?#\s]+:[0-9]{1,5}\Z")
_BASE64: Final = re.compile(r"[A-Za-z0-9+/_-]+={0,2}\Z")
_NUMBER: Final = re.compile(r"\s*([0-9]{1,5})(?:\.0+)?\s*\Z")
_DESCRIPTION: Final = "?serverDescription="
"""The text that Remnawave adds to a link's name for one client program."""


class Uri(msgspec.Struct, frozen=True, kw_only=True):
    """A share link's parts, percent-decoded except ``user``; an IPv6 host without brackets."""

    scheme: str
    user: str
    host: str
    port: str
    query: Parameters
    name: str
    notes: tuple[Sentence, ...] = ()


def split(text: str, *, needs_port: bool = False) -> Uri:
    """Split a link into its parts. Raises Unreadable.

    ``needs_port``: links of this scheme always name a port, which shows the end of a bare IPv6
    address.
    """
    scheme, _, rest = unescaped(text).partition("://")
    rest, _, fragment = rest.partition("#")
    body, _, query = rest.partition("?")
    user, address = _authority(scheme.lower(), body.strip())
    host, port = _host_and_port(decoded(address), needs_port=needs_port)
    parameters = parameters_of(query.strip())
    name, _, description = fragment.partition(_DESCRIPTION)
    return Uri(
        scheme=scheme.lower(),
        user=user,
        host=host,
        port=port,
        query=parameters,
        name=trimmed(decoded(name)) or parameters.get("remarks", "remark"),
        notes=(say("no-effect", key="serverDescription"),) if description else (),
    )


def unescaped(text: str) -> str:
    """Return a link with the escapes of ``&`` in HTML and JSON removed."""
    for _ in range(_ESCAPED_MAX):
        if ";" in text or "\\u" in text:
            text = _AMPERSAND.sub("&", text)
    return text


def _authority(scheme: str, body: str) -> tuple[str, str]:
    """Return the user, and ``host:port``. Some programs write both in base64, as one."""
    at, slash = body.rfind("@"), body.find("/")
    if at > slash >= 0 and scheme in ("http", "https") and not is_base64(body[:at]):
        at = -1  # the @ belongs to the path, not to the end of a user part with a slash
    if at < 0:
        whole = from_base64(decoded(body.rstrip("/")))
        if whole is not None and _ADDRESS.match(whole.strip()):
            user, _, address = whole.strip().rpartition("@")
            return quote(user, safe=":"), address
    user, address = (body[:at], body[at + 1 :]) if at >= 0 else ("", body)
    address, _, path = address.partition("/")
    if path:
        raise Unreadable(
            "the link must have no path (write / in a password as %2F; "
            "a subscription's address is not a node)"
        )
    return user, address


def _host_and_port(address: str, *, needs_port: bool) -> tuple[str, str]:
    if address.startswith("["):
        host, closed, port = address[1:].partition("]")
        if not closed or (port and not port.startswith(":")):
            raise Unreadable("server must be a host name or an IP address")
        return host, port.removeprefix(":")
    if address.count(":") > 1 and "," not in address:
        return _bare_ipv6(address, needs_port=needs_port)
    host, _, port = address.partition(":")
    return host, port


def _bare_ipv6(address: str, *, needs_port: bool) -> tuple[str, str]:
    """Return the host and port of an IPv6 address without brackets. Raises Unreadable if it is
    ambiguous.
    """
    host, _, port = address.rpartition(":")
    with_port = is_address(host) and ":" in host and _NUMBER.match(port) is not None
    if is_address(address) and not (with_port and needs_port):
        if with_port:
            raise Unreadable("an IPv6 server with a port must stand in brackets")
        return address, ""
    if with_port:
        return host, port
    host, _, port = address.partition(":")
    return host, port


def link_to(
    scheme: str, user: str, fields: Mapping[str, Any], query: Mapping[str, str], name: str
) -> str:
    """Return a link to a node's server. `user` is written as given. Parameters without a value are
    left out.
    """
    parameters = "&".join(f"{key}={encoded(value)}" for key, value in query.items() if value)
    server = fields["server"]
    host = f"[{server}]" if ":" in server else server
    return (
        f"{scheme}://{user}{'@' if user else ''}{host}:{fields['port']}"
        f"{'?' if parameters else ''}{parameters}#{encoded(name)}"
    )


def decoded(text: str) -> str:
    """Return `text` without percent escapes. Raises Unreadable when they are not UTF-8."""
    try:
        return unquote(text, errors="strict")
    except UnicodeError as error:
        raise Unreadable("the link's % escapes must be UTF-8") from error


def encoded(text: str) -> str:
    """Return `text` with all but unreserved characters (RFC 3986) escaped."""
    return quote(text, safe="")


def user_and_password(user: str, *, may_be_base64: bool = False) -> tuple[str, str]:
    """Return the parts of ``user:password``, decoded. The password is empty when there is no colon.

    v2rayN escapes the whole part, its colon or the signs of its base64 included.
    """
    if ":" in user:
        name, _, password = user.partition(":")
        return decoded(name), decoded(password)
    plain = decoded(user)
    if may_be_base64 and ":" in (unpacked := from_base64(plain) or ""):
        plain = unpacked
    name, _, password = plain.partition(":")
    return name, password


def is_base64(text: str) -> bool:
    """True if `text` is made of base64's letters, and stands for a text."""
    return _BASE64.match(decoded(text)) is not None and from_base64(decoded(text)) is not None


def from_base64(text: str) -> str | None:
    """Return the text that base64 (either alphabet, padded or not) stands for, or None."""
    plain = text.strip().rstrip("=").replace("-", "+").replace("_", "/")
    try:
        return b64decode(plain + "=" * (-len(plain) % 4), validate=True).decode()
    except ValueError:
        return None


def to_base64(text: str, *, url_safe: bool = False) -> str:
    """Return `text` in base64. The URL-safe alphabet is written without padding."""
    made = b64encode(text.encode()).decode()
    return made.rstrip("=").replace("+", "-").replace("/", "_") if url_safe else made


def number_or(text: str, default: int | None = None) -> int | str:
    """Return a whole number as programs write it (``443``, ``443.0``).

    A text that is no number is returned unchanged, for the field's check to refuse.
    """
    if not text and default is not None:
        return default
    match = _NUMBER.match(text)
    return int(match[1]) if match else text
