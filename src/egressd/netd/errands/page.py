"""A page of the web: TLS verified, redirects followed, as many bytes of it as are allowed."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from functools import partial
from typing import Final
from urllib.parse import urljoin, urlsplit

import urllib3
from urllib3.exceptions import HTTPError, LocationParseError, MaxRetryError, SSLError

from egressd.model.wording import say
from egressd.netd.errands.order import ERRAND_S, ErrandOutcome, PageErrand, Work
from egressd.netd.errands.reasons import ReasonOf

_REDIRECTS_MAX: Final = 5
_CHUNK: Final = 1 << 15
"""Bytes of the page that are delivered at a time."""
_FIELD_MAX: Final = 1000
"""Characters of a field that are returned."""
_OK: Final = 200
"""The status of a page (RFC 9110, 15.3.1)."""
_NO_URL: Final = "it redirects to no URL"
_ENCODINGS: Final = "gzip, deflate"


def prepared(errand: PageErrand, reason: ReasonOf, deliver: Callable[[bytes], None]) -> Work:
    """Return the function that fetches the page, and calls `deliver` with its bytes in order."""
    tls = ssl.create_default_context()
    return partial(_work, errand, tls, reason, deliver)


def _work(
    errand: PageErrand, tls: ssl.SSLContext, reason: ReasonOf, deliver: Callable[[bytes], None]
) -> ErrandOutcome:
    try:
        with urllib3.PoolManager(ssl_context=tls, retries=False, timeout=ERRAND_S) as pool:
            return _fetched(errand, pool, deliver)
    except LocationParseError:
        # Its text has the URL of a redirect, which may have a key of its own.
        return ErrandOutcome(is_done=False, reason=say("page-broken", reason=_NO_URL))
    except HTTPError as error:
        cause = error.reason if isinstance(error, MaxRetryError) and error.reason else error
        code = "tls-failure" if isinstance(cause, SSLError) else "page-broken"
        return ErrandOutcome(is_done=False, reason=say(code, reason=reason(str(cause))))


def _fetched(
    errand: PageErrand, pool: urllib3.PoolManager, deliver: Callable[[bytes], None]
) -> ErrandOutcome:
    url, headers = errand.url, {**errand.headers, "Accept-Encoding": _ENCODINGS}
    for _ in range(_REDIRECTS_MAX + 1):
        answer = pool.request("GET", url, headers=headers, redirect=False, preload_content=False)
        following = answer.get_redirect_location()
        if not following:
            return _read(errand, answer, deliver)
        answer.close()
        before, url = urlsplit(url), urljoin(url, following)
        after = urlsplit(url)
        if after.scheme != "https" and (before.scheme, after.scheme) != ("http", "http"):
            return ErrandOutcome(is_done=False, reason=say("page-redirect-plain"))
        if (before.scheme, before.netloc) != (after.scheme, after.netloc):
            headers = {"User-Agent": headers["User-Agent"], "Accept-Encoding": _ENCODINGS}
    return ErrandOutcome(is_done=False, reason=say("page-redirects", most=_REDIRECTS_MAX))


def _read(
    errand: PageErrand, answer: urllib3.BaseHTTPResponse, deliver: Callable[[bytes], None]
) -> ErrandOutcome:
    with answer:
        status = answer.status
        if status != _OK:
            reason = say("page-status", status=status)
            return ErrandOutcome(is_done=False, reason=reason, status=status)
        size = 0
        for content in answer.stream(_CHUNK, decode_content=True):
            size += len(content)
            if size > errand.read_max:
                reason = say("page-too-long", most=errand.read_max)
                return ErrandOutcome(is_done=False, reason=reason, status=status)
            for start in range(0, len(content), _CHUNK):
                deliver(content[start : start + _CHUNK])
    found = {name: answer.headers.get(name, "")[:_FIELD_MAX] for name in errand.fields}
    return ErrandOutcome(
        is_done=True, status=status, fields={name: text for name, text in found.items() if text}
    )
