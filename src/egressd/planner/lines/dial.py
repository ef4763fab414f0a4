"""A VPN line that is to be dialled, its check, and the addresses needed to dial it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from functools import lru_cache
from ipaddress import IPv4Address
from typing import Final

import msgspec

from egressd.formats.hosts import parse_host
from egressd.model.bounds import COMMENT_MAX, CREDENTIAL_MAX, DNS_SERVERS_MAX
from egressd.model.errors import Invalid
from egressd.model.names import (
    AUTO,
    DNS_PROFILES,
    LINE_TYPES,
    has_control_characters,
    is_interface_name,
)
from egressd.model.nouns import Line

PPTP_PORT: Final = 1723
"""The only port that pptp(8) can dial (RFC 2637, 2)."""

_REMEMBERED: Final = 4096  # results kept, those used last
_SILENT: Final = ("id", "comment", "dns_profile", "dns_servers", "is_enabled")
"""Fields that the daemons never see."""


class Dial(msgspec.Struct, frozen=True, kw_only=True):
    """A line, and the addresses found for one attempt at it.

    ``local`` is the carrier's address, which is the source of every packet of the daemons.
    ``local_port`` is an L2TP line's own UDP port; PPTP has none.
    """

    line: Line
    server: IPv4Address
    local: IPv4Address
    local_port: int = 0


def dial_key(line: Line) -> str:
    """Return a key that is equal for two lines exactly when an established one may stay up as the
    other.
    """
    seen = [getattr(line, field) for field in line.__struct_fields__ if field not in _SILENT]
    return hashlib.sha256(msgspec.msgpack.encode(seen)).hexdigest()


def check(line: Line) -> None:
    """Raise Invalid, with every reason, when `line` cannot be dialled at all.

    The API has checked lines already. netd runs programs as root with their values, so it checks
    again.
    """
    problems = [*malformed(line)]
    if line.type == "pptp" and line.port != PPTP_PORT:
        problems.append(f"port must be {PPTP_PORT} for pptp: its client dials no other")
    if problems:
        raise Invalid(*problems)


@lru_cache(_REMEMBERED)
def malformed(line: Line) -> tuple[str, ...]:
    """Return the faults that keep `line` out of the plan: a sentence for each malformed field."""
    return tuple(_problems(line))


def _problems(line: Line) -> Iterator[str]:
    prefix = f"{line.type}_"
    if line.type not in LINE_TYPES:
        yield f"type must be one of {', '.join(LINE_TYPES)}"
    elif not (is_interface_name(line.name) and line.name.startswith(prefix)):
        yield f"name must be an interface name that begins with {prefix}"
    if line.interface != AUTO and not is_interface_name(line.interface):
        yield "interface must be auto or an interface name"
    try:
        is_host = ":" not in parse_host(line.server)
    except ValueError:
        is_host = False
    if not is_host:
        yield "server must be an IPv4 address or a host name"
    if not 1 <= line.port <= 65535:
        yield "port must be a whole number from 1 to 65535"
    if not line.username:
        yield "username must not be empty"
    for field in ("username", "password", "secret"):
        yield from _credential_problems(field, getattr(line, field))
    if has_control_characters(line.comment) or len(line.comment) > COMMENT_MAX:
        yield f"comment must be one line of at most {COMMENT_MAX} characters"
    if line.dns_profile not in DNS_PROFILES:
        yield f"dns_profile must be one of {', '.join(DNS_PROFILES)}"
    if len(line.dns_servers) > DNS_SERVERS_MAX or not all(map(_is_address, line.dns_servers)):
        yield f"dns_servers must be at most {DNS_SERVERS_MAX} IPv4 addresses"


def _is_address(text: str) -> bool:
    try:
        IPv4Address(text)
    except ValueError:
        return False
    return True


def _credential_problems(field: str, value: str) -> Iterator[str]:
    if has_control_characters(value):
        yield f"{field} must not contain control characters"
    elif len(value.encode()) > CREDENTIAL_MAX:
        yield f"{field} must have at most {CREDENTIAL_MAX} bytes"
    if value.startswith("@/"):
        # A secrets file would take it for the name of a file to read (pppd(8), AUTHENTICATION).
        yield f"{field} must not begin with @/"
