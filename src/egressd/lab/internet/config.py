"""What the servers of the internet are told at their start."""

from __future__ import annotations

import msgspec


class Config(msgspec.Struct, frozen=True, kw_only=True):
    """What to serve. ``control`` is the Unix socket to answer on."""

    control: str
    servers: tuple[str, ...]
    """Addresses of the web and echo servers."""
    resolvers: tuple[str, ...]
    zone: dict[str, tuple[str, ...]]
    certificate: str
    key: str
