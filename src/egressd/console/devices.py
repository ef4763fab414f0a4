"""Browsers that a user has logged in with. Guesses from elsewhere do not lock them out.

Such a browser holds a cookie for a year: a random name, and a code that only this device can make
for it. Nothing is stored. The code depends on the password's hash, so it is void once the password
changes: a user who knew only an earlier password is a stranger. The cookie does not log in. It
makes the browser's guesses count apart from other browsers' (OWASP, *Slow Down Online Guessing
Attacks with Device Cookies*).
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from typing import Final

KEPT_S: Final = 365 * 24 * 60 * 60
"""Seconds for which a browser keeps the cookie."""
_PURPOSE: Final = "egressd console device"
_FORM: Final = re.compile(r"([0-9a-f]{16})\.([0-9a-f]{64})")


def cookie_of(session_cookie: str) -> str:
    """Return the cookie's name, which is derived from the name of the session's cookie."""
    return f"{session_cookie}-device"


def issue(password_hash: str, cookie: str, held: str) -> str:
    """Return a value for the cookie named `cookie`. `held` is its present value, or empty."""
    name = known(password_hash, cookie, held) or secrets.token_hex(8)
    return f"{name}.{_code(password_hash, cookie, name)}"


def known(password_hash: str, cookie: str, held: str) -> str:
    """Return the name in the cookie's value, or "" if this device did not make the value for this
    password.
    """
    found = _FORM.fullmatch(held)
    if found and hmac.compare_digest(found[2], _code(password_hash, cookie, found[1])):
        return found[1]
    return ""


def _code(password_hash: str, cookie: str, name: str) -> str:
    text = f"{_PURPOSE} {cookie} {name}"
    return hmac.new(password_hash.encode(), text.encode(), hashlib.sha256).hexdigest()
