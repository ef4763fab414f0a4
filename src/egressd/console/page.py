"""The built page: its files are read once, before the api gives up the right to read them.

A request's path is looked up among these files, and is never joined to a folder's path.
"""

from __future__ import annotations

import gzip
import hashlib
import mimetypes
from pathlib import Path
from typing import Final, NamedTuple

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
    ".js": "text/javascript",
    ".mjs": "text/javascript",
    ".webmanifest": "application/manifest+json",
    ".woff2": "font/woff2",
}
NOT_BUILT: Final = """\
egressd is running. Its console is not built: run `script/setup` in the source folder and start
the service again. The API is at /svc/api/v1, its documentation at /ops/docs.
"""


class File(NamedTuple):
    """A file, and its gzipped form if the type is worth compressing."""

    content: bytes
    zipped: bytes | None
    media_type: str
    etag: str


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
        if file.zipped is not None and takes_gzip(header(scope, b"accept-encoding") or ""):
            content = file.zipped
            headers["content-encoding"] = "gzip"
        return Response(content, headers=headers, media_type=file.media_type)


def _read(path: Path) -> File:
    content = path.read_bytes()
    media_type = _TYPES.get(path.suffix) or mimetypes.guess_type(path.name)[0]
    media_type = media_type or "application/octet-stream"
    zipped = None
    if media_type.startswith(_TEXTS):
        zipped = gzip.compress(content, mtime=0)
    return File(content, zipped, media_type, f'"{hashlib.sha256(content).hexdigest()[:24]}"')
