"""Which requests are a session's.

A request counts as one only when all of this holds, whatever path it is for:

- it came over HTTPS, or from this machine, or plain HTTP is allowed (`[console] insecure`);
- its ``Host`` is an IP address or a name of ours: a name that somebody else points at this
  device (DNS rebinding) is not;
- it bears the session's cookie, once, and no ``Authorization``;
- a browser sent it on behalf of our own page: it says no other ``Origin`` or ``Sec-Fetch-Site``;
  and where it may change something it must say ours, and bear a header that a page from
  elsewhere cannot set without being asked (fetch.spec.whatwg.org, CORS preflight), and we
  never consent.

The cookie's name is bound into the session (`Sessions.prepare`): one made over plain HTTP does
not count over HTTPS.
"""

from __future__ import annotations

from collections.abc import Iterable
from ipaddress import ip_address
from typing import Final

from starlette.types import Scope

from egressd.console.sessions import Sessions
from egressd.model.console import Session

SECURE_COOKIE: Final = "__Host-egressd"
"""Browsers take it from HTTPS only, for this very host (RFC 6265bis, 4.1.3.2)."""
PLAIN_COOKIE: Final = "egressd"
OWN_HEADER: Final = b"x-egressd-console"
SAFE_METHODS: Final = ("GET", "HEAD")

_PORTS: Final = {"http": 80, "https": 443}


class SessionCaller:
    """A session's request, as the gate knows it."""

    def __init__(self, sessions: Sessions, session: Session) -> None:
        self._sessions = sessions
        self.session = session
        self.name = f"session {session.id}"

    def is_live(self) -> bool:
        """Whether the session goes on; asking counts as using it."""
        if not self._sessions.is_live(self.session.key):
            return False
        self._sessions.touch(self.session)
        return True


class Door:
    """Knows the names of this device and how the console may be reached."""

    def __init__(self, sessions: Sessions, names: Iterable[str], *, insecure: bool) -> None:
        self._sessions = sessions
        self._names = frozenset({"localhost", *(name.lower() for name in names if name)})
        self._insecure = insecure

    def caller(self, scope: Scope) -> SessionCaller | None:
        """The session that a request is of; it is being used then."""
        cookie = self.cookie(scope)
        if cookie is None or header(scope, b"authorization") is not None:
            return None
        if not self.knows_host(scope) or not is_own_page(scope):
            return None
        secret = cookie_value(scope, cookie)
        session = None if secret is None else self._sessions.find(cookie, secret)
        if session is None:
            return None
        self._sessions.touch(session)
        return SessionCaller(self._sessions, session)

    def cookie(self, scope: Scope) -> str | None:
        """The name of the cookie for a request's transport; None where there is no console."""
        if scope.get("scheme") == "https":
            return SECURE_COOKIE
        return PLAIN_COOKIE if self._insecure or _is_loopback(scope) else None

    def knows_host(self, scope: Scope) -> bool:
        """Whether a request names this device: an IP address, or a name of ours."""
        host = host_of(scope)
        return host is not None and (_is_address(host) or host.rstrip(".") in self._names)


def header(scope: Scope, name: bytes) -> str | None:
    """A header's value; an empty text, which is never right, where it is sent several times."""
    values = [value for key, value in scope["headers"] if key == name]
    if not values:
        return None
    return values[0].decode("latin-1") if len(values) == 1 else ""


def host_of(scope: Scope) -> str | None:
    """The host that a request is for, in lower case, without its port; IPv6 in brackets."""
    name, _, port = _authority(scope)
    return name.lower() if name and (not port or port.isdecimal()) else None


def is_own_page(scope: Scope) -> bool:
    """Whether a browser would send this request for our page, and no other's."""
    origin = header(scope, b"origin")
    if origin is not None and not _is_own_origin(scope, origin):
        return False
    if header(scope, b"sec-fetch-site") not in (None, "same-origin", "none"):
        return False
    if scope["method"] in SAFE_METHODS:
        return True
    return origin is not None and header(scope, OWN_HEADER) == "1"


def source_of(scope: Scope) -> str:
    """Where a request comes from: an address."""
    return (scope.get("client") or ("local",))[0]


def _authority(scope: Scope) -> tuple[str, str, str]:
    host = header(scope, b"host") or ""
    if host.startswith("["):
        name, bracket, rest = host.partition("]")
        return name + bracket, ":", rest.removeprefix(":")
    return host.partition(":")


def _is_own_origin(scope: Scope, origin: str) -> bool:
    scheme = scope.get("scheme", "http")
    name, _, port = _authority(scope)
    own = f"{scheme}://{name}"
    if port and port != str(_PORTS.get(scheme)):
        own += f":{port}"
    return origin.lower() == own.lower()


def _is_address(host: str) -> bool:
    try:
        ip_address(host[1:-1] if host.startswith("[") else host)
    except ValueError:
        return False
    return True


def _is_loopback(scope: Scope) -> bool:
    try:
        return ip_address(source_of(scope)).is_loopback
    except ValueError:
        return False


def cookie_value(scope: Scope, name: str) -> str | None:
    """The cookie's value. Sent twice, one of the two was put there by somebody else: None."""
    values = []
    for key, line in scope["headers"]:
        if key == b"cookie":
            for pair in line.decode("latin-1").split(";"):
                found, _, value = pair.strip().partition("=")
                if found == name:
                    values.append(value)
    return values[0] if len(values) == 1 else None
