"""Browsers that somebody has logged in with, so that guesses from elsewhere do not lock them out.

Such a browser holds a cookie for a year: a random name, and a code that only this device can make
for it. Nothing is stored. The code is made of the password's hash too, so that none outlives the
password: who knew it once and does not any more is a stranger. The cookie lets nobody in. It has
the browser's guesses counted apart from others' (OWASP, *Slow Down Online Guessing Attacks with
Device Cookies*).
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
    """The cookie's name, beside that of the session."""
    return f"{session_cookie}-device"


def issue(password_hash: str, cookie: str, held: str) -> str:
    """A value for the cookie of that name, for the browser that holds `held` in it, or nothing."""
    name = known(password_hash, cookie, held) or secrets.token_hex(8)
    return f"{name}.{_code(password_hash, cookie, name)}"


def known(password_hash: str, cookie: str, held: str) -> str:
    """The name in the cookie's value; empty where this device has not made it for the password."""
    found = _FORM.fullmatch(held)
    if found and hmac.compare_digest(found[2], _code(password_hash, cookie, found[1])):
        return found[1]
    return ""


def _code(password_hash: str, cookie: str, name: str) -> str:
    text = f"{_PURPOSE} {cookie} {name}"
    return hmac.new(password_hash.encode(), text.encode(), hashlib.sha256).hexdigest()
