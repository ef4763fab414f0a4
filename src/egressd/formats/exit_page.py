"""Pages that say where they are asked from: an address alone, or lines like ``ip=192.0.2.1``.

The page comes from the internet, through a node that may have replaced it. So it is read strictly:
all of it must have one of the two forms.
"""

from __future__ import annotations

import re
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Final

from egressd.model.exits import SeenExit
from egressd.model.wording import Sentence, say

EXIT_PAGE_MAX: Final = 4095
"""Bytes of a page; Cloudflare's trace has about 300."""

_LINE: Final = re.compile(r"([a-z0-9_-]{1,32})=([ -~]{0,512})")
_ADDRESS: Final = re.compile(r"[0-9A-Fa-f.:]{2,45}")
_COUNTRY: Final = re.compile(r"[A-Z][A-Z0-9]")
_NO_COUNTRY: Final = "XX"
"""The word for an unknown country, of Cloudflare's and of ISO 3166's users."""


class UnreadableExit(Exception):
    """The page does not say where it was asked from; ``reason`` says why not."""

    def __init__(self, reason: Sentence) -> None:
        super().__init__(reason)
        self.reason = reason


def read_exit(page: bytes) -> SeenExit:
    """Return the address, and the country if the page has it. Raises UnreadableExit.

    Of lines with names, ``ip`` is needed once, and ``loc`` is the country's code.
    """
    if len(page) > EXIT_PAGE_MAX:
        raise UnreadableExit(say("exit-page-long", most=EXIT_PAGE_MAX))
    try:
        text = page.decode("ascii")
    except UnicodeDecodeError:
        raise UnreadableExit(say("exit-page-form")) from None
    lines = [line for line in text.replace("\r\n", "\n").strip("\n").split("\n") if line]
    if len(lines) == 1 and _ADDRESS.fullmatch(lines[0]):
        return SeenExit(ip=_host(lines[0]))
    pairs = [_LINE.fullmatch(line) for line in lines]
    named = [(pair[1], pair[2]) for pair in pairs if pair is not None]
    addresses = [value for name, value in named if name == "ip"]
    countries = [value for name, value in named if name == "loc"]
    if len(named) < len(lines) or len(addresses) != 1 or len(countries) > 1:
        raise UnreadableExit(say("exit-page-form"))
    return SeenExit(ip=_host(addresses[0]), country=_country("".join(countries)))


def _host(text: str) -> str:
    """Return an address that a far end can have seen, in its usual form."""
    try:
        address: IPv4Address | IPv6Address = ip_address(text)
    except ValueError:
        raise UnreadableExit(say("exit-page-address")) from None
    if isinstance(address, IPv6Address):
        address = address.ipv4_mapped or address
        if isinstance(address, IPv6Address) and address.scope_id is not None:
            raise UnreadableExit(say("exit-page-address"))
    if (
        address.is_unspecified
        or address.is_loopback
        or address.is_multicast
        or address.is_link_local
    ):
        raise UnreadableExit(say("exit-page-address"))
    return str(address)


def _country(code: str) -> str:
    return code if _COUNTRY.fullmatch(code) and code != _NO_COUNTRY else ""
