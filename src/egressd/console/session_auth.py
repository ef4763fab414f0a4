"""Decides which requests belong to a session.

A request does only if all of these conditions hold, on every path:

- it came over HTTPS, or from this machine, or plain HTTP is allowed (`[console] insecure`);
- its ``Host`` is an IP address or a name of this device. A foreign name that resolves to this
  device (DNS rebinding) is refused;
- it carries the session's cookie, exactly once, and no ``Authorization``;
- a browser sent it for the console's own page. A request with another ``Origin`` or
  ``Sec-Fetch-Site`` is refused. A request that may change something must carry the page's own
  ``Origin``, and a header that a page of another origin can set only after a CORS preflight
  (fetch.spec.whatwg.org), which the console never grants.

The session is bound to the cookie's name (`Sessions.prepare`): a session begun over plain HTTP is
not valid over HTTPS.
"""

from __future__ import annotations

from collections.abc import Iterable
from ipaddress import ip_address
from typing import Final

from starlette.types import Scope

from egressd.console.sessions import Sessions
from egressd.model.console import Session
from egressd.model.tokens import Need

SECURE_COOKIE: Final = "__Host-egressd"
"""Cookie name over HTTPS. Browsers accept it from HTTPS only, for this very host (RFC 6265bis,
4.1.3.2).
"""
PLAIN_COOKIE: Final = "egressd"
OWN_HEADER: Final = b"x-egressd-console"
SAFE_METHODS: Final = ("GET", "HEAD")

_PORTS: Final = {"http": 80, "https": 443}


class SessionCaller:
    """The session that sent a request, as the gate's caller."""

    def __init__(self, sessions: Sessions, session: Session) -> None:
        self._sessions = sessions
        self.session = session
        self.name = f"session {session.id}"

    def may(self, need: Need) -> bool:
        """Return True: a session opens everything."""
        return True

    def is_live(self) -> bool:
        """True if the session goes on. The call counts as a use of the session."""
        if not self._sessions.is_live(self.session.key):
            return False
        self._sessions.touch(self.session)
        return True


class SessionAuthenticator:
    """Knows this device's names and the transports on which the console may be reached."""

    def __init__(self, sessions: Sessions, names: Iterable[str], *, insecure: bool) -> None:
        self._sessions = sessions
        self._names = frozenset({"localhost", *(name.lower() for name in names if name)})
        self._insecure = insecure

    def caller(self, scope: Scope) -> SessionCaller | None:
        """Return the session of a request and note its use; None for any other request."""
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
        """Return the cookie's name for a request's transport; None if the console is
        closed to it.
        """
        if scope.get("scheme") == "https":
            return SECURE_COOKIE
        return PLAIN_COOKIE if self._insecure or _is_loopback(scope) else None

    def knows_host(self, scope: Scope) -> bool:
        """True if a request's host is an IP address or a name of this device."""
        host = host_of(scope)
        return host is not None and (_is_address(host) or host.rstrip(".") in self._names)


def header(scope: Scope, name: bytes) -> str | None:
    """Return a header's value; "", which is never valid, if it was sent several times."""
    values = [value for key, value in scope["headers"] if key == name]
    if not values:
        return None
    return values[0].decode("latin-1") if len(values) == 1 else ""


def host_of(scope: Scope) -> str | None:
    """Return the request's host in lower case, without its port; IPv6 in brackets."""
    name, _, port = _authority(scope)
    return name.lower() if name and (not port or port.isdecimal()) else None


def is_own_page(scope: Scope) -> bool:
    """True if a browser sends such a request only for the console's page."""
    origin = header(scope, b"origin")
    if origin is not None and not _is_own_origin(scope, origin):
        return False
    if header(scope, b"sec-fetch-site") not in (None, "same-origin", "none"):
        return False
    if scope["method"] in SAFE_METHODS:
        return True
    return origin is not None and header(scope, OWN_HEADER) == "1"


def source_of(scope: Scope) -> str:
    """Return the address that a request comes from."""
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
    """Return the cookie's value; None if it is missing or was sent twice, since then another site
    may have set one of the two.
    """
    values = []
    for key, line in scope["headers"]:
        if key == b"cookie":
            for pair in line.decode("latin-1").split(";"):
                found, _, value = pair.strip().partition("=")
                if found == name:
                    values.append(value)
    return values[0] if len(values) == 1 else None
