"""Points of time in the form of the API, licenses and records."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

UTC_FORMAT: Final = "%Y-%m-%dT%H:%M:%SZ"
"""ISO 8601 in UTC, to the second: for `strftime` and `strptime`."""


def is_utc_text(text: str) -> bool:
    """True if a text is a point of time in this form."""
    try:
        return datetime.strptime(text, UTC_FORMAT).strftime(UTC_FORMAT) == text
    except ValueError:
        return False


def utc_text(seconds: float) -> str:
    """Return Unix time as text."""
    return datetime.fromtimestamp(seconds, UTC).strftime(UTC_FORMAT)


def utc_seconds(text: str) -> int:
    """Return the Unix time of a text in this form. Raises ValueError."""
    return int(datetime.strptime(text, UTC_FORMAT).replace(tzinfo=UTC).timestamp())
