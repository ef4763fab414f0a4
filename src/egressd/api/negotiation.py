"""The form of an answer that a caller asks for.

``/svc/api/v1`` answers programs in the one shape of its specification, regardless of ``Accept``.
The operations endpoints, and v1 to the console's own page, have more for a request whose ``Accept``
header names problem documents (RFC 9457): the codes of faults and sentences.
"""

from __future__ import annotations

from typing import Final

from starlette.datastructures import Headers
from starlette.types import Scope

from egressd.model.problem import is_asked_for

CSV: Final = "text/csv"

_MAY_ASK: Final = "egressd.may_ask_for_codes"


def let_ask(scope: Scope) -> None:
    """Let this request be answered with codes, if it asks for them."""
    scope[_MAY_ASK] = True


def wants_codes(scope: Scope) -> bool:
    """Return True if the request is to be answered with codes."""
    return bool(scope.get(_MAY_ASK)) and is_asked_for(Headers(scope=scope).getlist("accept"))


def wants_csv(scope: Scope) -> bool:
    """Return True if the request's ``Accept`` names CSV (RFC 4180)."""
    accepted = ",".join(Headers(scope=scope).getlist("accept")).split(",")
    return any(each.split(";")[0].strip().lower() == CSV for each in accepted)
