"""SSH."""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Iterator
from typing import Any, Final, get_args

from egressd.formats.entries.entry import SERVER, TO_SERVER, Entry
from egressd.formats.fields import TEXT, TEXT_LIST, Kind, Table, list_from_text, short_text
from egressd.formats.layers import Values
from egressd.model.faults import Fault, fault
from egressd.model.outbounds import HostKeyAlgorithm

_PEM: Final = re.compile(
    r"\s*-----BEGIN ([A-Z0-9 ]{0,20}PRIVATE KEY)-----(.*)-----END \1-----\s*\Z", re.DOTALL
)
_HEADERS: Final = re.compile(
    r"\s*((?:[A-Za-z-]{1,32}: ?[A-Za-z0-9,-]{1,90}[ \t\r]*\n)*)(.*)", re.DOTALL
)
"""The headers of a key that OpenSSL encrypted (RFC 1421), and the key."""
_KEY_MAX: Final = 16_384
_LINE: Final = 64
"""Letters of base64 in a line of PEM (RFC 7468)."""
_HOST_KEY: Final = re.compile(
    r"(?:\S+\s+)??((?:ssh|ecdsa|sk)-[a-z0-9@.-]{1,60})\s+([A-Za-z0-9+/]{16,1900}={0,2})(?:\s.*)?\Z"
)
"""A key's type and the key, with the names of known_hosts(5) before it or a comment behind it."""
_HOST_KEYS_MAX: Final = 64


def _private_key(value: Any) -> list[str]:
    """Return the lines of a key in PEM, from one text or a list of lines. Only the lines of a key
    that OpenSSL encrypted matter: others may be joined, or end in ``\\n``.
    """
    given = value if isinstance(value, list) else [value]
    if not all(isinstance(line, str) for line in given):
        raise ValueError
    text = "\n".join(given).replace("\\n", "\n")
    match = _PEM.match(text) if len(text) <= _KEY_MAX else None
    if match is None:
        raise ValueError
    head = _HEADERS.match(match[2])
    assert head is not None
    letters = "".join(head[2].split())
    if not b64decode(letters, validate=True):
        raise ValueError
    headers = [line.strip() for line in head[1].splitlines() if line.strip()]
    lines = [letters[at : at + _LINE] for at in range(0, len(letters), _LINE)]
    between = [*headers, ""] if headers else []
    return [f"-----BEGIN {match[1]}-----", *between, *lines, f"-----END {match[1]}-----"]


def _host_keys(value: Any) -> list[str]:
    given = [value] if isinstance(value, str) else value
    if not isinstance(given, list) or len(given) > _HOST_KEYS_MAX:
        raise ValueError
    return [_host_key(key) for key in given if key not in (None, "")]


def _host_key(value: Any) -> str:
    match = _HOST_KEY.match(value.strip()) if isinstance(value, str) else None
    if match is None:
        raise ValueError
    # RFC 4253, section 6.6: the key begins with its type, whose length is before it.
    kind = match[1].encode()
    if not b64decode(match[2], validate=True).startswith(len(kind).to_bytes(4) + kind):
        raise ValueError
    return f"{match[1]} {match[2]}"


_ALGORITHMS: Final = get_args(HostKeyAlgorithm)


def _algorithms(value: Any) -> list[str]:
    given = list_from_text(value) if isinstance(value, str) else TEXT_LIST.check(value)
    if not all(name in _ALGORITHMS for name in given):
        raise ValueError
    return given


def _passphrase_needs_key(values: Values) -> Iterator[Fault]:
    if "private-key-passphrase" in values and "private-key" not in values:
        yield fault("private-key", "needed-by", other="private-key-passphrase")


def _udp_without_effect(values: Values) -> Iterator[str]:
    if values.get("udp", False):
        yield "udp"


SSH: Final = Entry(
    Table(
        {
            **SERVER,
            "username": short_text(255),
            "password": TEXT,
            "private-key": Kind("ssh-private-key", _private_key),
            "private-key-passphrase": TEXT,
            "host-key": Kind("ssh-host-keys", _host_keys),
            "host-key-algorithms": Kind(
                "ssh-algorithms", _algorithms, list_from_text, values={"choices": _ALGORITHMS}
            ),
        },
        TO_SERVER,
    ),
    (_passphrase_needs_key,),
    (_udp_without_effect,),
)
