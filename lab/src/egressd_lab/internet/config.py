"""The start parameters of the internet's servers."""

from __future__ import annotations

import msgspec


class Config(msgspec.Struct, frozen=True, kw_only=True):
    """Addresses, names and certificate of the servers. ``control`` is the Unix socket
    to answer on.
    """

    control: str
    servers: tuple[str, ...]
    """Addresses of the web and echo servers."""
    resolvers: tuple[str, ...]
    zone: dict[str, tuple[str, ...]]
    certificate: str
    key: str
