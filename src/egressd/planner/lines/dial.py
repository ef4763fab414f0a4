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
from egressd.model.wording import Sentence, say

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
        problems.append(say("pptp-port-only", field="port", port=PPTP_PORT))
    if problems:
        raise Invalid(*problems)


@lru_cache(_REMEMBERED)
def malformed(line: Line) -> tuple[Sentence, ...]:
    """Return the faults that keep `line` out of the plan: a sentence for each malformed field."""
    return tuple(_problems(line))


def _problems(line: Line) -> Iterator[Sentence]:
    prefix = f"{line.type}_"
    if line.type not in LINE_TYPES:
        yield say("one-of", field="type", choices=LINE_TYPES)
    elif not (is_interface_name(line.name) and line.name.startswith(prefix)):
        yield say("interface-name-with-prefix", field="name", prefix=prefix)
    if line.interface != AUTO and not is_interface_name(line.interface):
        yield say("auto-or-interface", field="interface")
    try:
        is_host = ":" not in parse_host(line.server)
    except ValueError:
        is_host = False
    if not is_host:
        yield say("ipv4-or-host", field="server")
    if not 1 <= line.port <= 65535:
        yield say("whole-number", field="port", least=1, most=65535)
    if not line.username:
        yield say("empty", field="username")
    for field in ("username", "password", "secret"):
        yield from _credential_problems(field, getattr(line, field))
    if has_control_characters(line.comment) or len(line.comment) > COMMENT_MAX:
        yield say("one-line", field="comment", most=COMMENT_MAX)
    if line.dns_profile not in DNS_PROFILES:
        yield say("one-of", field="dns_profile", choices=DNS_PROFILES)
    if len(line.dns_servers) > DNS_SERVERS_MAX or not all(map(_is_address, line.dns_servers)):
        yield say("dns-servers", field="dns_servers", most=DNS_SERVERS_MAX)


def _is_address(text: str) -> bool:
    try:
        IPv4Address(text)
    except ValueError:
        return False
    return True


def _credential_problems(field: str, value: str) -> Iterator[Sentence]:
    if has_control_characters(value):
        yield say("control-characters", field=field)
    elif len(value.encode()) > CREDENTIAL_MAX:
        yield say("too-many-bytes", field=field, most=CREDENTIAL_MAX)
    if value.startswith("@/"):
        # A secrets file would take it for the name of a file to read (pppd(8), AUTHENTICATION).
        yield say("begins-as-file", field=field)
