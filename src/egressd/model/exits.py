"""The addresses that far ends see of the device's egresses."""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

import msgspec

EXIT_URL: Final = "https://www.cloudflare.com/cdn-cgi/trace"
"""A page that returns the address, and the country, of its client."""

ExitKind: TypeAlias = Literal["direct", "wan", "line", "node"]
"""The kind of a target that has an exit."""


class SeenExit(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of a page that says where it is asked from."""

    ip: str
    """An IPv4 or IPv6 address in its usual form."""
    country: str = ""
    """Two letters or digits, as ISO 3166 has them; empty if the page has none."""


class KnownExit(SeenExit, frozen=True, kw_only=True):
    """The last answer about a target, in UTC. `changed_at` is the time of the first answer with
    this address.
    """

    seen_at: str
    changed_at: str
