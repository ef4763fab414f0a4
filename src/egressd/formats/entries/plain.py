"""SOCKS5 and HTTP proxies."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from egressd.formats.entries.entry import SERVER, TO_SERVER, Entry
from egressd.formats.fields import BOOLEAN, HEADERS, Table, short_text, text_where
from egressd.formats.layers import (
    TLS,
    Values,
    certificate_bears_server_name,
    no_ech_in_reality,
    one_server_name,
    reality_needs_tls,
    tls_without_effect,
)
from egressd.model.faults import Fault, fault


def _user_before_password(values: Values) -> Iterator[Fault]:
    if "password" in values and "username" not in values:
        yield fault("username", "needed-by", other="password")


def _no_tls_to_socks(values: Values) -> Iterator[Fault]:
    if values.get("tls", False):
        yield fault("tls", "no-tls-to-socks")


def _udp_without_effect(values: Values) -> Iterator[str]:
    if values.get("udp", False):
        yield "udp"


SOCKS5: Final = Entry(
    Table(
        # RFC 1929 gives one length byte to each.
        {**SERVER, "username": short_text(255), "password": short_text(255), "tls": BOOLEAN},
        TO_SERVER,
    ),
    (_user_before_password, _no_tls_to_socks),
)

HTTP: Final = Entry(
    Table(
        {
            **SERVER,
            **TLS,
            "username": text_where(
                "text-without-colon",  # RFC 7617, section 2
                lambda text: len(text.encode()) <= 255 and ":" not in text,
                most=255,
            ),
            "password": short_text(255),
            "tls": BOOLEAN,
            "headers": HEADERS,
        },
        TO_SERVER,
    ),
    (
        _user_before_password,
        one_server_name,
        certificate_bears_server_name,
        reality_needs_tls,
        no_ech_in_reality,
    ),
    (tls_without_effect, _udp_without_effect),
)
