"""The built page: its files are read once, before the api gives up the right to read them.

A request's path is looked up among these files, and is never joined to a folder's path.
"""

from __future__ import annotations

import gzip
import hashlib
from functools import cached_property
from pathlib import Path
from typing import Final

from starlette.responses import PlainTextResponse, Response
from starlette.types import Scope

from egressd.console.session_auth import SAFE_METHODS, header
from egressd.model.encodings import takes_gzip

FOLDER: Final = Path(__file__).parent / "page"
"""The folder where ``script/setup`` builds the page."""

_HASHED: Final = "/assets/"
"""The path prefix of files that have a digest of their content in their name."""
_FOREVER: Final = "public, max-age=31536000, immutable"
_TEXTS: Final = ("text/", "application/json", "application/javascript", "image/svg", "font/ttf")

_TYPES: Final = {
    ".css": "text/css",
    ".html": "text/html",
    ".js": "text/javascript",
    ".json": "application/json",
    ".mjs": "text/javascript",
    ".png": "image/png",
    ".svg": "image/svg+xml",
    ".ttf": "font/ttf",
    ".txt": "text/plain",
    ".webmanifest": "application/manifest+json",
    ".woff2": "font/woff2",
}
"""Media types by suffix, whatever the machine's table of them says."""
NOT_BUILT: Final = """\
egressd is running. Its console is not built: run `script/setup` in the source folder and start
the service again. The API is at /svc/api/v1, its documentation at /ops/docs.
"""


class File:
    """A file of the page."""

    def __init__(self, content: bytes, media_type: str) -> None:
        self.content = content
        self.media_type = media_type
        self.etag = f'"{hashlib.sha256(content).hexdigest()[:24]}"'

    @cached_property
    def zipped(self) -> bytes | None:
        """Its gzipped form if the type is worth compressing. It is made for the first browser that
        takes it, and not at each start: that takes 25 ms.
        """
        if not self.media_type.startswith(_TEXTS):
            return None
        return gzip.compress(self.content, mtime=0)


class Page:
    """The page's files by path; none if the page was not built."""

    def __init__(self, folder: Path = FOLDER) -> None:
        self._files = {
            f"/{path.relative_to(folder).as_posix()}": _read(path)
            for path in sorted(folder.rglob("*"))
            if path.is_file() and not path.is_symlink()
        }
        if "/index.html" in self._files:
            self._files["/"] = self._files.pop("/index.html")

    def response(self, scope: Scope) -> Response:
        """Return the response to a request for a file."""
        if scope["method"] not in SAFE_METHODS:
            return PlainTextResponse("Only GET is answered here.\n", 405, {"allow": "GET, HEAD"})
        path = scope["path"]
        file = self._files.get(path)
        if file is None:
            if path == "/":
                return PlainTextResponse(NOT_BUILT)
            return PlainTextResponse("There is nothing here.\n", 404)
        headers = {
            "etag": file.etag,
            "cache-control": _FOREVER if path.startswith(_HASHED) else "no-cache",
            "vary": "accept-encoding",
        }
        if file.etag in (header(scope, b"if-none-match") or ""):
            return Response(status_code=304, headers=headers)
        content = file.content
        if takes_gzip(header(scope, b"accept-encoding") or "") and file.zipped is not None:
            content = file.zipped
            headers["content-encoding"] = "gzip"
        return Response(content, headers=headers, media_type=file.media_type)


def _read(path: Path) -> File:
    return File(path.read_bytes(), _TYPES.get(path.suffix, "application/octet-stream"))
