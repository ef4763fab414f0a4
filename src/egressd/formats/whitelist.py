"""The whitelist's text: domains and addresses, separated by commas or newlines."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterator
from ipaddress import IPv4Address, IPv4Network
from typing import Final, TypeVar

import msgspec

from egressd.formats.hosts import parse_domain, parse_port
from egressd.model.errors import Invalid
from egressd.model.faults import Fault, fault
from egressd.model.wording import Value

T = TypeVar("T", bound=Hashable)

SCHEME_PORTS: Final = {"http": 80, "https": 443, "quic": 443}
"""The schemes that an entry may begin with, and the default port of each."""

_SHOWN: Final = 80
"""Characters of a bad entry that a message repeats."""


class DomainEntry(msgspec.Struct, frozen=True):
    """A domain with its subdomains, in ASCII.

    An ordinary entry (``scheme`` empty, ``port`` 0) applies to the usual ports of every scheme, any
    other only to one scheme on one port.
    """

    domain: str
    scheme: str = ""
    port: int = 0


class _Bad(ValueError):
    """An entry that is not valid, with the code of its fault."""

    def __init__(self, code: str, **values: Value) -> None:
        super().__init__(code)
        self.code = code
        self.values = values


class WhitelistEntries(msgspec.Struct, frozen=True):
    """The domains and networks of the whitelist: each once, in order of first appearance."""

    domains: tuple[DomainEntry, ...] = ()
    networks: tuple[IPv4Network, ...] = ()


def parse_whitelist(domains: str, ips: str) -> WhitelistEntries:
    """Read both texts. Raises Invalid that names every bad entry of either."""
    problems: list[Fault] = []
    entries = WhitelistEntries(
        domains=_read(domains, "domains", _domain, problems),
        networks=_read(ips, "ips", _network, problems),
    )
    if problems:
        raise Invalid(*problems)
    return entries


def _read(text: str, field: str, read: Callable[[str], T], problems: list[Fault]) -> tuple[T, ...]:
    found: dict[T, None] = {}
    for entry in split_entries(text):
        try:
            found[read(entry)] = None
        except _Bad as bad:
            shown = entry if len(entry) <= _SHOWN else f"{entry[:_SHOWN]}…"
            problems.append(fault(field, bad.code, entry=shown, **bad.values))
    return tuple(found)


def split_entries(text: str) -> Iterator[str]:
    """Return the entries of one of the texts, as they are written."""
    return (entry for part in re.split("[,\n]", text) if (entry := part.strip()))


def is_network(entry: str) -> bool:
    """True if an entry belongs to the addresses, correct or with host bits."""
    try:
        IPv4Network(entry, strict=False)
    except ValueError:
        return False
    return True


def _domain(entry: str) -> DomainEntry:
    """Read ``example.com``, ``*.example.com``, ``+.example.com``, ``https://example.com:8443``."""
    scheme, separator, rest = entry.rpartition("://")
    if not separator:
        return DomainEntry(_suffix(entry))
    scheme = scheme.lower()
    if scheme not in SCHEME_PORTS:
        raise _Bad("entry-scheme", schemes=tuple(f"{known}://" for known in SCHEME_PORTS))
    name, colon, port_text = rest.partition(":")
    try:
        port = parse_port(port_text) if colon else SCHEME_PORTS[scheme]
    except ValueError:
        raise _Bad("entry-port") from None
    return DomainEntry(_suffix(name), scheme, port)


def _suffix(text: str) -> str:
    name = text[2:] if text.startswith(("*.", "+.")) else text
    try:
        IPv4Address(name)
    except ValueError:
        pass
    else:
        raise _Bad("entry-is-address", other="ips")
    try:
        return parse_domain(name)
    except ValueError:
        raise _Bad("entry-domain") from None


def _network(entry: str) -> IPv4Network:
    """Read an IPv4 address or CIDR."""
    if ":" in entry:
        raise _Bad("entry-ipv6")
    try:
        return IPv4Network(entry)
    except ValueError:
        pass
    try:
        wider = IPv4Network(entry, strict=False)
    except ValueError:
        raise _Bad("entry-network") from None
    raise _Bad("entry-host-bits", network=str(wider))
