"""Host names, IP addresses and ``host:port`` in the forms that people write."""

from __future__ import annotations

import re
from ipaddress import (
    AddressValueError,
    IPv4Address,
    IPv4Network,
    IPv6Address,
    IPv6Network,
    ip_address,
)
from typing import Final

import idna

from egressd.model.bounds import HOST_MAX

PORT_MAX = 65535

_LABEL = re.compile(r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?\Z")
_NUMBER = re.compile(r"(?:[0-9]+|0x[0-9a-f]*)\Z")
_WRITTEN_MAX: Final = HOST_MAX + 1
"""Characters of a host name that ends in a dot."""
_PORT = re.compile(r"[0-9]{1,5}\Z")


Address = IPv4Address | IPv6Address

_HERE: Final = "here"
_KINDS: Final = {
    _HERE: ("0.0.0.0/32", "127.0.0.0/8", "::/128", "::1/128"),
    "private": (
        "10.0.0.0/8",
        "172.16.0.0/12",
        "192.168.0.0/16",
        "100.64.0.0/10",
        "fc00::/7",
    ),
    "link-local": ("169.254.0.0/16", "fe80::/10", "fec0::/10"),
    "multicast": ("224.0.0.0/4", "ff00::/8"),
    "reserved": ("0.0.0.0/8", "192.0.0.0/24", "240.0.0.0/4"),
}
"""Kinds of addresses that no server on the internet has (IANA's special-purpose registries)."""
_NETWORKS: Final = [
    (IPv6Network(net) if ":" in net else IPv4Network(net), kind)
    for kind, nets in _KINDS.items()
    for net in nets
]
_NAT64: Final = (IPv6Network("64:ff9b::/96"), IPv6Network("64:ff9b:1::/48"))
"""Networks whose IPv6 addresses hold an IPv4 address in the last 32 bits (RFC 6052, RFC 8215)."""
_INNER_DOMAINS: Final = ("localhost", "local", "localdomain", "internal", "lan", "home.arpa")
"""Domains that lead to no server on the internet (RFC 6761, 6762, 8375, ICANN's ``internal``), and
two that routers use."""


def parse_domain(text: str) -> str:
    """Return the domain name in lower-case ASCII (IDNs as punycode, UTS 46), without a final dot.

    An underscore is allowed: such names exist. A name whose last label is a number is refused,
    since resolvers read it as an address (WHATWG URL, "ends in a number"). Raises ValueError.
    """
    if len(text) > _WRITTEN_MAX:
        raise ValueError(f"not a domain name: {text[:60]!r}…")
    name = text.lower()
    if not name.isascii():
        # Each label has at least this length in ASCII (RFC 3492, 5: xn--). Encoding a longer one is
        # slow.
        if (
            sum(len(label) + 4 * (not label.isascii()) + 1 for label in name.split("."))
            > _WRITTEN_MAX
        ):
            raise ValueError(f"not a domain name: {text[:60]!r}…")
        try:
            name = idna.encode(name, uts46=True).decode("ascii").lower()
        except (idna.IDNAError, UnicodeError) as error:
            raise ValueError(f"not a domain name: {text!r}") from error
    name = name.removesuffix(".")
    labels = name.split(".")
    if len(name) > HOST_MAX or not all(_LABEL.match(label) for label in labels):
        raise ValueError(f"not a domain name: {text[:60]!r}")
    if _NUMBER.match(labels[-1]):
        raise ValueError(f"neither an IPv4 address nor a domain name: {text[:60]!r}")
    return name


def parse_host(text: str) -> str:
    """Return a host name or an IP address, normalised; IPv6 with or without its brackets.

    Raises ValueError. An IPv6 zone (``%eth0``) is refused, since other settings choose the egress.
    """
    if len(text) > _WRITTEN_MAX:
        raise ValueError(f"not a host: {text[:60]!r}…")
    bare = text[1:-1] if text.startswith("[") and text.endswith("]") else text
    if ":" in bare:
        if "%" in bare:
            raise ValueError("an IPv6 address with a zone")
        return str(IPv6Address(bare))
    if bare is not text:
        raise ValueError("brackets are for IPv6 addresses")
    if text[-1:].isdigit():
        try:
            return str(IPv4Address(text))
        except AddressValueError:
            pass
    return parse_domain(text)


def is_address(text: str) -> bool:
    """True if `text` is an IP address, IPv6 with or without its brackets."""
    try:
        ip_address(text[1:-1] if text.startswith("[") and text.endswith("]") else text)
    except ValueError:
        return False
    return "%" not in text


def dialled_address(host: str) -> Address | None:
    """Return the address that packets to a normalised host are sent to, or None for a name.

    An IPv4-mapped IPv6 address stands for its IPv4 address (RFC 4291, 2.5.5.2).
    """
    if ":" in host:
        address = IPv6Address(host)
        return address.ipv4_mapped or address
    try:
        return IPv4Address(host)
    except AddressValueError:
        return None


def address_of(host: str) -> Address | None:
    """Return the address of a normalised host, or None for a name.

    An IPv6 address that stands for an IPv4 address (mapped, compatible, 6to4, NAT64) gives that
    one.
    """
    address = dialled_address(host)
    if not isinstance(address, IPv6Address):
        return address
    if address.sixtofour is not None:
        return address.sixtofour
    if 1 < int(address) < 1 << 32 or any(address in network for network in _NAT64):
        return IPv4Address(int(address) & 0xFFFF_FFFF)
    return address


def kind_of_address(address: Address) -> str:
    """Return the kind of an address that no server on the internet has (``private``), or ""."""
    return next((kind for network, kind in _NETWORKS if address in network), "")


def is_inner_name(host: str) -> bool:
    """True if a normalised host is a name that no server on the internet has."""
    return "." not in host or any(host.endswith(f".{domain}") for domain in _INNER_DOMAINS)


def leads_here(host: str) -> bool:
    """True if a normalised host leads to the machine that resolves or dials it."""
    address = address_of(host)
    if address is None:
        return host == "localhost" or host.endswith(".localhost")
    return kind_of_address(address) == _HERE


def parse_port(text: str) -> int:
    """Return a port from its decimal digits. Raises ValueError."""
    if not _PORT.match(text) or not 1 <= int(text) <= PORT_MAX:
        raise ValueError("not a port")
    return int(text)


def join_host_port(host: str, port: int) -> str:
    """Return ``host:port``, with an IPv6 address in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
