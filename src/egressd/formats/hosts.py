"""Host names, IP addresses and ``host:port`` as people write them."""

from __future__ import annotations

import re
from ipaddress import AddressValueError, IPv4Address, IPv6Address

import idna

PORT_MAX = 65535

_LABEL = re.compile(r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?\Z")
_ALL_DIGITS = re.compile(r"[0-9]+\Z")
_PORT = re.compile(r"[0-9]{1,5}\Z")


def parse_domain(text: str) -> str:
    """The domain name in lower-case ASCII (IDNs as punycode, UTS 46), without a final dot.

    An underscore is allowed: such names exist. A name whose last label is a number is
    refused, since resolvers read it as an address (WHATWG URL, "ends in a number").
    Raises ValueError.
    """
    name = text.lower()
    if not name.isascii():
        if len(name) > 253:
            raise ValueError(f"not a domain name: {text[:60]!r}…")
        try:
            name = idna.encode(name, uts46=True).decode("ascii").lower()
        except (idna.IDNAError, UnicodeError) as error:
            raise ValueError(f"not a domain name: {text!r}") from error
    name = name.removesuffix(".")
    labels = name.split(".")
    if len(name) > 253 or not all(_LABEL.match(label) for label in labels):
        raise ValueError(f"not a domain name: {text[:60]!r}")
    if _ALL_DIGITS.match(labels[-1]):
        raise ValueError(f"neither an IPv4 address nor a domain name: {text[:60]!r}")
    return name


def parse_host(text: str) -> str:
    """A host name or an IP address, normalised; IPv6 with or without its brackets.

    Raises ValueError. An IPv6 zone (``%eth0``) is refused: the egress is chosen elsewhere.
    """
    bare = text[1:-1] if text.startswith("[") and text.endswith("]") else text
    if ":" in bare:
        if "%" in bare:
            raise ValueError("an IPv6 address with a zone")
        return str(IPv6Address(bare))
    if bare is not text:
        raise ValueError("brackets are for IPv6 addresses")
    try:
        return str(IPv4Address(text))
    except AddressValueError:
        return parse_domain(text)


def parse_port(text: str) -> int:
    """A port from its decimal digits. Raises ValueError."""
    if not _PORT.match(text) or not 1 <= int(text) <= PORT_MAX:
        raise ValueError("not a port")
    return int(text)


def join_host_port(host: str, port: int) -> str:
    """``host:port``, an IPv6 address in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
