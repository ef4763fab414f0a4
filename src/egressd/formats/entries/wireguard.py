"""WireGuard."""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Iterator
from ipaddress import IPv4Address, IPv4Network, IPv6Network, ip_network
from typing import Any, Final

from egressd.formats.entries.entry import SERVER, TO_SERVER, Entry
from egressd.formats.fields import TEXT, Kind, Table, list_from_text, whole
from egressd.formats.layers import Values
from egressd.model.faults import Fault, fault

KEY_BYTES: Final = 32
NETWORKS_MAX: Final = 64
_RESERVED_BYTES: Final = 3


def _key(value: Any) -> str:
    """Return a key in the usual base64, of one in either alphabet, padded or not."""
    if not isinstance(value, str) or len(value) > 2 * KEY_BYTES:
        raise ValueError
    plain = value.strip().rstrip("=").replace("-", "+").replace("_", "/")
    raw = b64decode(plain + "=" * (-len(plain) % 4), validate=True)
    if len(raw) != KEY_BYTES:
        raise ValueError
    return b64encode(raw).decode()


def _address(value: Any) -> str:
    """Return an IPv4 address. Its network's length may stand behind it."""
    if not isinstance(value, str):
        raise ValueError  # noqa: TRY004 (one exception type says "not of this kind")
    address, slash, length = value.strip().partition("/")
    if slash and not (length.isascii() and length.isdecimal() and int(length) <= 32):
        raise ValueError
    return str(IPv4Address(address))


def _networks(value: Any) -> list[str]:
    """Return the IPv4 networks of a list. Those of IPv6 are left out: clients have no such way."""
    given = list_from_text(value) if isinstance(value, str) else value
    if not isinstance(given, list) or len(given) > NETWORKS_MAX:
        raise ValueError
    if not all(isinstance(each, str) for each in given):
        raise ValueError
    networks: list[IPv4Network | IPv6Network] = [ip_network(each, strict=False) for each in given]
    found = [str(each) for each in networks if each.version == 4]
    if not found:
        raise ValueError
    return list(dict.fromkeys(found))


def _reserved(value: Any) -> list[int]:
    """Return three bytes, of a list, numbers between commas, or base64."""
    if isinstance(value, str):
        words = list_from_text(value)
        value = words if len(words) == _RESERVED_BYTES else [*b64decode(value, validate=True)]
    if not isinstance(value, list) or len(value) != _RESERVED_BYTES:
        raise ValueError
    return [_byte(each) for each in value]


def _byte(value: Any) -> int:
    if isinstance(value, str) and value.isascii() and value.isdecimal() and len(value) <= 3:
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= 255:
        raise ValueError
    return value


_KEY: Final = Kind("wireguard-key", _key, str.strip)


def _one_end(values: Values) -> Iterator[Fault]:
    if "private-key" in values and values.get("private-key") == values.get("public-key"):
        yield fault("public-key", "differs-from", other="private-key")


def _ipv6_without_effect(values: Values) -> Iterator[str]:
    if "ipv6" in values:
        yield "ipv6"


WIREGUARD: Final = Entry(
    Table(
        {
            **SERVER,
            "private-key": _KEY,
            "public-key": _KEY,
            "pre-shared-key": _KEY,
            "ip": Kind("tunnel-address", _address, str.strip),
            "ipv6": TEXT,
            "allowed-ips": Kind(
                "tunnel-networks", _networks, list_from_text, values={"most": NETWORKS_MAX}
            ),
            "reserved": Kind("reserved-bytes", _reserved),
            "mtu": whole(576, 9000),
            "persistent-keepalive": whole(0, 65_535),
        },
        TO_SERVER | {"private-key", "public-key", "ip"},
    ),
    (_one_end,),
    (_ipv6_without_effect,),
)
