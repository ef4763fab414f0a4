"""Loads what the standard library and its users would load later.

Python looks up codecs and back-ends when they are first needed. By then the api may not be
able to read its interpreter's files any more.
"""

from __future__ import annotations

import codecs
from importlib import import_module

_CODECS = ("ascii", "latin-1", "utf-8", "utf-8-sig", "utf-16", "utf-32", "idna", "punycode")
_MODULES = (
    "anyio._backends._asyncio",
    "asyncio.runners",
    "concurrent.futures.thread",
    "encodings.idna",
    "idna.uts46data",
    "http.cookies",
    "multiprocessing.connection",
    "python_multipart",
    "stringprep",
    "traceback",
    "uvicorn.lifespan.off",
    "uvicorn.protocols.http.httptools_impl",
    "zoneinfo",
)


def preload() -> None:
    """Load them; one that is not installed is not needed."""
    for name in _CODECS:
        codecs.lookup(name)
    for name in _MODULES:
        try:
            import_module(name)
        except ModuleNotFoundError:
            continue
