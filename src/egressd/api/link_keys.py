"""Keys of rotation links: the one kind of token that stands in a URL.

A key is taken out of its request before anything reads the path, so that no log, no record and no
answer to an error has it. Only the gate gets it, and the endpoint that it opens.
"""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import unquote_to_bytes

from starlette.types import Scope

from egressd.api.endpoints import OPS_PREFIX

LINKS: Final = f"{OPS_PREFIX}/rotate"
"""The path that links are below of."""
HIDDEN: Final = "***"
"""The text in place of a key."""

_KEY: Final = "egressd.link_key"
_LINK: Final = re.compile(rf"{LINKS}/([^/]+)(/[^/]+)?".encode())
_SIMILAR: Final = re.compile(r"ops/+rotate/+.", re.IGNORECASE | re.DOTALL)
"""A path that may have been meant for a link."""
_SECRET: Final = re.compile(r"egressd_[A-Za-z0-9_-]{16,}")
"""A scoped token as a part of a path, where none belongs."""


def take_key(scope: Scope) -> None:
    """Take the key out of the path of a request, if it has one."""
    if not _SIMILAR.search(scope["path"]):
        return
    raw = scope.get("raw_path") or scope["path"].encode("utf-8", "surrogateescape")
    found = _LINK.fullmatch(raw)
    # What is no link exactly is none: like any other path without an endpoint, but hidden.
    path = LINKS if found is None else f"{LINKS}/{HIDDEN}"
    if found is not None:
        scope[_KEY] = unquote_to_bytes(found[1])
        path += (found[2] or b"").decode("ascii", "replace")
    scope["path"] = f"{LINKS}/{HIDDEN}" if found is None else path
    scope["raw_path"] = path.encode()


def key_of(scope: Scope) -> bytes:
    """Return the key that was taken out of the path of a request; empty without one."""
    key: bytes = scope.get(_KEY, b"")
    return key


def shown_path(scope: Scope) -> str:
    """Return the path of a request for logs and records, without any token."""
    return _SECRET.sub(HIDDEN, scope["path"])
