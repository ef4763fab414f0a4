"""Files of leases of DHCP servers: dnsmasq, Kea (``memfile`` as CSV) and ISC dhcpd.

Host names in them come from clients. Lines without the form of the file are passed over.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Iterator
from ipaddress import IPv4Address
from typing import Final

from egressd.formats.dhcp import clean_text
from egressd.model.devices import DhcpLease, normal_mac

_KEA_FIRST: Final = "address,hwaddr,"
_KEA_ACTIVE: Final = ("", "0")
_DHCPD: Final = re.compile(
    r"\s*(?:(lease) ([0-9.]{7,15}) \{|(hardware) ethernet ([0-9A-Fa-f:]{17});"
    r'|(client-hostname) "((?:[^"\\]|\\.){0,255})";|(binding) state (\w+);|(\}))\s*\Z'
)
_OCTAL: Final = re.compile(r"\\([0-7]{3})")
_LINE_MAX: Final = 4096
"""Characters of a line that are looked at."""
LEASES_MAX: Final = 65_536


def read_leases(lines: Iterable[str]) -> list[DhcpLease]:
    """Return the leases in a file of any of these servers, one for each address: the last one."""
    found: dict[str, DhcpLease] = {}
    for ip, lease in _entries(line[:_LINE_MAX] for line in lines):
        if lease is None:
            found.pop(ip, None)
        elif len(found) < LEASES_MAX or ip in found:
            found[ip] = lease
    return [*found.values()]


def _entries(lines: Iterable[str]) -> Iterator[tuple[str, DhcpLease | None]]:
    """Yield addresses with their leases, or with None where a lease has ended."""
    rest = iter(lines)
    for line in rest:
        if line.startswith(_KEA_FIRST):
            yield from _kea(line, rest)
            return
        if line.startswith(("lease ", "#", "authoring-byte-order", "server-duid")):
            yield from _dhcpd([line], rest)
            return
        yield from _dnsmasq(line)


def _dnsmasq(line: str) -> Iterator[tuple[str, DhcpLease | None]]:
    """Yield the lease in a line: time, hardware address, address, name or ``*``, client."""
    match line.split():
        case [_, mac, ip, name, *_]:
            yield from _lease(mac, ip, "" if name == "*" else name)


def _kea(head: str, lines: Iterable[str]) -> Iterator[tuple[str, DhcpLease | None]]:
    fields = head.strip().split(",")
    for line in lines:
        try:  # by itself, so that no quote of a line concerns the next one
            row = dict(zip(fields, next(csv.reader([line]), ()), strict=False))
        except csv.Error:
            continue
        ip = row.get("address") or ""
        if row.get("valid_lifetime") == "0" or (row.get("state") or "") not in _KEA_ACTIVE:
            yield ip, None
        else:
            yield from _lease(row.get("hwaddr") or "", ip, row.get("hostname") or "")


def _dhcpd(first: Iterable[str], lines: Iterable[str]) -> Iterator[tuple[str, DhcpLease | None]]:
    ip = mac = name = state = ""
    for line in (*first, *lines):
        match _DHCPD.match(line):
            case None:
                continue
            case found:
                word, value = _word(found)
        match word:
            case "lease":
                ip, mac, name, state = value, "", "", "active"
            case "hardware":
                mac = value
            case "client-hostname":
                name = _OCTAL.sub(lambda octal: chr(int(octal[1], 8)), value)
            case "binding":
                state = value
            case _ if state == "active":
                yield from _lease(mac, ip, name)
            case _:
                yield ip, None


def _word(found: re.Match[str]) -> tuple[str, str]:
    word, *more = [group for group in found.groups() if group is not None]
    return word, more[0] if more else ""


def _lease(mac: str, ip: str, name: str) -> Iterator[tuple[str, DhcpLease | None]]:
    normal = normal_mac(mac)
    try:
        address = str(IPv4Address(ip))
    except ValueError:
        return
    if normal is not None:
        yield address, DhcpLease(mac=normal, ip=address, hostname=clean_text(name))
