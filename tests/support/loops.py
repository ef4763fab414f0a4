"""The event loops that asynchronous tests run on."""

from __future__ import annotations

from typing import Any

Backend = tuple[str, dict[str, Any]]
"""A value of the fixture `anyio_backend`: the library, and the options of its event loop."""
