"""The URL that delays are measured with. Pure."""

from __future__ import annotations

import codecs
from typing import Final
from urllib.parse import quote, urlsplit

import msgspec

_IDNA: Final = codecs.lookup("idna")
"""The IDNA codec. Loaded here: when a worker reads a URL it can no longer read the interpreter's
own files."""


_HOST_MAX: Final = 253
"""Characters in a host name (RFC 1035, 2.3.4, without the implied ones)."""


class Url(msgspec.Struct, frozen=True):
    """The destination of a request: ``target`` is the path and query of its first line."""

    is_https: bool
    host: str
    port: int
    target: str

    @property
    def authority(self) -> str:
        """The value of the Host header field (RFC 9110, 7.2)."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == (443 if self.is_https else 80) else f"{host}:{self.port}"


def parse_url(text: str) -> Url:
    """Read an HTTP(S) URL. Raises ValueError with a sentence that says what it takes."""
    try:
        parts = urlsplit(text)
        host, port = parts.hostname or "", parts.port
        if ":" not in host:
            host = _IDNA.encode(host)[0].decode("ascii")
    except ValueError as error:
        raise ValueError(f"url must be an http:// or https:// URL: {error}") from error
    if parts.scheme not in ("http", "https") or not 1 <= len(host) <= _HOST_MAX:
        raise ValueError("url must be an http:// or https:// URL with a host")
    if parts.username is not None:
        raise ValueError("url must not hold a user name")
    is_https = parts.scheme == "https"
    # Characters not allowed in a request's first line are percent-encoded (RFC 3986, 2.1).
    path = quote(parts.path or "/", safe="/%:@!$&'()*+,;=-._~")
    query = "?" + quote(parts.query, safe="/?%:@!$&'()*+,;=-._~") if parts.query else ""
    if port is None:
        port = 443 if is_https else 80
    return Url(is_https, host, port, path + query)
