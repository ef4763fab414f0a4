"""Rows as sellers of proxies write them: ``host:port:user:password`` and the like."""

from __future__ import annotations

import re
from typing import Final

import msgspec

from egressd.formats.hosts import is_address, parse_host, parse_port
from egressd.formats.rows import ROW_MAX

_ADDRESS: Final = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^:@\s\[\]]+):([0-9]{1,5})\Z")
_ADDRESS_FIRST: Final = re.compile(r"(\[[0-9A-Fa-f:.]+\]:[^:]*|[^:]*:[^:]*):(.*)\Z", re.DOTALL)
_BULLET: Final = re.compile(r"(?:[-*•·>]+\s+|[0-9]{1,4}(?:[.)]\s+|、\s*))(?=\S)")
_NAME: Final = re.compile(r"(?<=\S)\s++#\s*")


class SellerRow(msgspec.Struct, frozen=True):
    """A proxy's address and optional credentials. An IPv6 host is without brackets."""

    host: str
    port: int
    username: str = ""
    password: str = ""
    name: str = ""

    def __repr__(self) -> str:
        return f"SellerRow(host={self.host!r}, port={self.port})"


def seller_rows(row: str) -> list[SellerRow]:
    """Return the proxies of a row: one, several with blanks between them, or one and ``# name``,
    with an optional dash or number before them. The list is empty if the row holds anything else.
    """
    if len(row) > ROW_MAX:
        return []
    listed, *name = _NAME.split(_BULLET.sub("", row.strip(), count=1), 1)
    found = [seller_row(word) for word in listed.split()]
    proxies = [proxy for proxy in found if proxy is not None]
    if len(proxies) < len(found) or (name and len(found) > 1):
        return []
    return [msgspec.structs.replace(proxy, name="".join(name)) for proxy in proxies]


def seller_row(text: str) -> SellerRow | None:
    """Return the proxy of ``host:port``, ``host:port:user:password``, ``user:password@host:port``,
    or of the reversed forms ``user:password:host:port`` and ``host:port@user:password``. Return
    None if `text` has none of these forms.
    """
    if "@" in text:
        before, _, behind = text.rpartition("@")
        if found := _address(behind):
            return _with(found, before)
        before, _, behind = text.partition("@")
        if found := _address(before):
            return _with(found, behind)
    if found := _address(text):
        return SellerRow(*found)
    first = _ADDRESS_FIRST.match(text)
    if first is not None and (found := _address(first[1])):
        return _with(found, first[2])
    username, _, rest = text.partition(":")
    password, _, address = rest.partition(":")
    return _with(_address(address), f"{username}:{password}")


def _with(address: tuple[str, int] | None, credentials: str) -> SellerRow | None:
    username, colon, password = credentials.partition(":")
    return SellerRow(*address, username, password) if address and username and colon else None


def _address(text: str) -> tuple[str, int] | None:
    """Return a plausible host, and a port, or None."""
    match = _ADDRESS.match(text)
    if match is None:
        return None
    try:
        host, port = parse_host(match[1]), parse_port(match[2])
    except ValueError:
        return None
    return (host, port) if is_address(host) or "." in host else None
