"""Faults of the installed engine that the documents avoid.

``requirements/`` pins one version of the engine for each Python: not each version has wheels for
each Python. The version belongs to the installation, like that of Python itself, so that the same
input still gives the same document on the same device.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib import metadata
from typing import Any, Final

from egressd.model.wording import say

PACKAGE: Final = "sing-box-python"
_EARLY_DATA_MENDED: Final = (1, 14, 3)
LOST_EARLY_DATA: Final = say("early-data-lost")


@cache
def version() -> tuple[int, ...]:
    """Return the installed engine's version, such as (1, 14, 2)."""
    return tuple(int(number) for number in metadata.version(PACKAGE).split(".")[:3])


def version_text() -> str:
    """Return the installed engine's version as text, such as "1.14.2"."""
    return ".".join(map(str, version()))


@cache
def affected_protocols() -> frozenset[str]:
    """Return the node protocols that the installed engine has a fault with."""
    return frozenset() if version() >= _EARLY_DATA_MENDED else frozenset({"vmess"})


def loses_early_data(protocol: str, fields: Mapping[str, Any]) -> bool:
    """True if the engine would lose the early data that a configuration asks for.

    Before 1.14.3 the engine sometimes loses the first bytes of a client by VMess over WebSocket
    with early data. Such a node connects without early data, which only costs one round trip.
    """
    return (
        protocol in affected_protocols()
        and fields.get("network") == "ws"
        and bool(fields.get("ws-opts", {}).get("max-early-data"))
    )
