"""Requests of DHCP clients (RFC 2131), as a LAN's hosts have sent them.

Any host can send any bytes. So nothing of a frame is taken that does not have its form, and of the
texts that a client sends about itself only a clean and short part.
"""

from __future__ import annotations

import re
import struct
import unicodedata
from typing import Final

import msgspec

from egressd.model.skeleton import IGNORABLE

NAME_MAX: Final = 64
"""Characters of a text that a client sends about itself."""
_MARKS_MAX: Final = 2
"""Combining marks in a row: more of them cover the lines above and below."""
_READ_MAX: Final = 255
"""Characters of such a text that are looked at: an option has so many bytes, unless it is split."""

_SERVER_PORT: Final = 67
_UDP: Final = 17
"""The protocol's number in an IP header."""
_BOOTREQUEST, _ETHERNET, _MAC_BYTES = 1, 1, 6
_COOKIE: Final = b"\x63\x82\x53\x63"
_PAD, _HOST_NAME, _VENDOR_CLASS, _CLIENT_ID, _END = 0, 12, 60, 61, 255
_NAME_TYPE: Final = 0
"""The type of a client identifier that is no hardware address (RFC 2132, 9.14)."""
_IP_HEADER: Final = 20
"""Bytes of an IPv4 header without options."""
_UDP_HEADER: Final = 8
"""Bytes of a UDP header."""
_HEAD: Final = struct.Struct("!BBBBIHH4s4s4s4s16s64s128s4s")
"""op, htype, hlen, hops, xid, secs, flags, ciaddr, yiaddr, siaddr, giaddr, chaddr, sname, file,
and the magic cookie in front of the options."""

_SIGNS: Final = frozenset(" -_.'()+")
_SPACES: Final = re.compile(" +")
_IGNORED: Final = re.compile(f"[{IGNORABLE}]")
_ESCAPES: Final = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]?|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?|\x1b.?", re.DOTALL
)
"""Sequences that terminals obey (ECMA-48, 5.4 and 8.3.89)."""


class DhcpClient(msgspec.Struct, frozen=True, kw_only=True):
    """A client as its request describes it. Its texts are clean; empty if it sent none."""

    mac: str
    hostname: str = ""
    vendor_class: str = ""
    """The maker of its software, such as ``android-dhcp-13``."""


def read_request(packet: bytes) -> DhcpClient | None:
    """Return the client that has sent an IPv4 packet; None if it is no whole request of a client
    on this link, to a DHCP server.
    """
    options = _options_of(packet)
    if options is None:
        return None
    mac, found = options
    name = clean_text(found.get(_HOST_NAME, b""))
    identifier = found.get(_CLIENT_ID, b"")
    if not name and identifier[:1] == bytes([_NAME_TYPE]) and identifier[1:].isascii():
        name = clean_text(identifier[1:])
    return DhcpClient(
        mac=mac.hex(":"), hostname=name, vendor_class=clean_text(found.get(_VENDOR_CLASS, b""))
    )


def clean_text(sent: bytes | str) -> str:
    """Return the part of a host's text about itself that is safe to show, on one line.

    Letters, digits and a few signs are kept. Everything else is left out: control characters,
    escape sequences, markup, quotes, and what is invisible or changes the direction of writing.
    """
    text = sent.decode("utf-8", "ignore") if isinstance(sent, bytes) else sent
    # Sequences first: the letters in them are no text.
    text = _IGNORED.sub("", _ESCAPES.sub(" ", text[:_READ_MAX]))
    kept: list[str] = []
    marks = 0
    for character in unicodedata.normalize("NFC", text):
        group = unicodedata.category(character)[0]
        marks = marks + 1 if group == "M" else 0
        if group in "LN" or character in _SIGNS or (0 < marks <= _MARKS_MAX and kept):
            kept.append(character)
        elif group in "ZC":
            kept.append(" ")
    return _SPACES.sub(" ", "".join(kept)).strip()[:NAME_MAX].strip()


def _options_of(packet: bytes) -> tuple[bytes, dict[int, bytes]] | None:
    """Return the client's hardware address, and the options that are read here."""
    message = _payload(packet)
    if len(message) < _HEAD.size:
        return None
    op, kind, length, _, _, _, _, _, _, _, relay, address, _, _, cookie = _HEAD.unpack_from(message)
    mac = address[:_MAC_BYTES]
    is_request = (op, kind, length, cookie) == (_BOOTREQUEST, _ETHERNET, _MAC_BYTES, _COOKIE)
    # A relay's clients are on another link.
    if not is_request or any(relay) or mac[0] & 1 or not any(mac):
        return None
    found: dict[int, bytes] = {}
    at, end = _HEAD.size, len(message)
    while at < end and message[at] != _END:
        code = message[at]
        if code == _PAD:
            at += 1
            continue
        if at + 1 >= end or at + 2 + message[at + 1] > end:
            break
        value = message[at + 2 : at + 2 + message[at + 1]]
        if code in (_HOST_NAME, _VENDOR_CLASS, _CLIENT_ID):
            found[code] = found.get(code, b"") + value  # parts of one value (RFC 3396)
        at += 2 + len(value)
    return mac, found


def _payload(packet: bytes) -> bytes:
    """Return the content of a whole UDP datagram to a DHCP server; empty if it is none."""
    if len(packet) < _IP_HEADER or packet[0] >> 4 != 4:
        return b""
    header = 4 * (packet[0] & 15)
    total, _, fragment = struct.unpack_from("!HHH", packet, 2)
    is_whole = fragment & 0x3FFF == 0 and header + _UDP_HEADER <= total <= len(packet)
    if header < _IP_HEADER or not is_whole or packet[9] != _UDP:
        return b""
    _, port, length = struct.unpack_from("!HHH", packet, header)
    if port != _SERVER_PORT or not _UDP_HEADER <= length <= total - header:
        return b""
    return packet[header + _UDP_HEADER : header + length]
