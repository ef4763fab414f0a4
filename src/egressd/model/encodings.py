"""Content codings that a caller can decode."""

from __future__ import annotations

_NEVER = ("q=0", "q=0.0", "q=0.00", "q=0.000")


def takes_gzip(accept_encoding: str) -> bool:
    """True if an ``Accept-Encoding`` names gzip and does not refuse it (RFC 9110, 12.5.3)."""
    for part in accept_encoding.lower().split(","):
        name, _, weight = part.strip().partition(";")
        if name.strip() == "gzip":
            return weight.replace(" ", "") not in _NEVER
    return False
