"""The form of an answer that a caller asks for.

``/svc/api/v1`` answers programs in the one shape of its specification, regardless of ``Accept``.
The operations endpoints, and v1 to the console's own page, have more for a request whose ``Accept``
header names problem documents (RFC 9457): the codes of faults and sentences.
"""

from __future__ import annotations

import re
from typing import Final

from starlette.datastructures import Headers
from starlette.types import Scope

from egressd.model.problem import is_asked_for

CSV: Final = "text/csv"
HTML: Final = "text/html"

_LANGUAGE: Final = re.compile(r"([A-Za-z]{2})(?:-[A-Za-z0-9-]*)?(?:\s*;\s*q=([01](?:\.\d{0,3})?))?")
"""A language of ``Accept-Language``, and its weight (RFC 9110, 12.5.4)."""

_MAY_ASK: Final = "egressd.may_ask_for_codes"


def let_ask(scope: Scope) -> None:
    """Let this request be answered with codes, if it asks for them."""
    scope[_MAY_ASK] = True


def wants_codes(scope: Scope) -> bool:
    """Return True if the request is to be answered with codes."""
    return bool(scope.get(_MAY_ASK)) and is_asked_for(Headers(scope=scope).getlist("accept"))


def wants_csv(scope: Scope) -> bool:
    """Return True if the request's ``Accept`` names CSV (RFC 4180)."""
    return _names(scope, CSV)


def wants_html(scope: Scope) -> bool:
    """Return True if the request's ``Accept`` names HTML, as that of a browser does."""
    return _names(scope, HTML)


def wants_chinese(scope: Scope) -> bool:
    """Return True if the request's ``Accept-Language`` likes Chinese better than English."""
    weights = {"zh": 0.0, "en": 0.0}
    for each in ",".join(Headers(scope=scope).getlist("accept-language")).split(","):
        found = _LANGUAGE.fullmatch(each.strip())
        if found is not None and (name := found[1].lower()) in weights:
            weights[name] = max(weights[name], float(found[2] or 1))
    return weights["zh"] > weights["en"]


def _names(scope: Scope, media_type: str) -> bool:
    accepted = ",".join(Headers(scope=scope).getlist("accept")).split(",")
    return any(each.split(";")[0].strip().lower() == media_type for each in accepted)
