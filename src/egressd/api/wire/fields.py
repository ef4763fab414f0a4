"""The types of single fields on the wire.

All strict: a number is never a string, a boolean is only ``true`` or ``false``. What a field
may hold is said here, so that the OpenAPI document and the error texts (``x-takes``) say the
same; whether the named thing exists is for `service` to say.
"""

from __future__ import annotations

import re
from typing import Annotated, Any

from fastapi import Path
from pydantic import AfterValidator, BeforeValidator, Field

from egressd.model.bounds import (
    COMMENT_MAX,
    CONFIG_MAX,
    CREDENTIAL_MAX,
    DELAY_TIMEOUT_MAX_MS,
    HOST_MAX,
    ID_MAX,
    RULE_LIMIT_MAX_KBPS,
    URL_MAX,
)
from egressd.model.faults import Fault, takes
from egressd.model.names import (
    GROUP_PREFIX,
    INTERFACE_NAME_MAX,
    NODE_NAME_MAX,
    node_name_problem,
)
from egressd.model.times import is_utc_text, utc_seconds
from egressd.model.wording import Value
from egressd.service.checks import normal_network

# Each pattern is spelled so that the regular expressions of Rust, Python and ECMAScript read it
# alike. A lone surrogate is refused before it comes to one, since it has no UTF-8 form.
ONE_LINE = r"^[^\x00-\x1f\x7f-\x9f\u2028\u2029]*$"
_LINES = r"^[^\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]*$"
_OCTET = r"(25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
_IPV4_OR_CIDR = rf"^({_OCTET}\.){{3}}{_OCTET}(/(3[0-2]|[12]?[0-9]))?$"
_INTERFACE = r"[A-Za-z0-9][A-Za-z0-9_.@-]*"

_TARGET_MAX = len(GROUP_PREFIX) + NODE_NAME_MAX

_DECIMAL = re.compile(r"[0-9]{1,19}")


class Misfit(ValueError):
    """A value that does not fit, with the code and the values of its fault."""

    def __init__(self, code: str, **values: Value) -> None:
        super().__init__(code)
        self.code = code
        self.values = values

    @classmethod
    def of(cls, fault: Fault) -> Misfit:
        """Return the misfit for a fault of another check."""
        return cls(fault.code, **fault.values)


def form(code: str, **values: Value) -> dict[str, Any]:
    """Return the schema of a field whose constraints alone do not describe it: the values that it
    takes, in words, and the fault of any other value.
    """
    return {"x-takes": str(takes(code, **values)), "x-fault": {"code": code, "values": values}}


def _without_host_bits(value: str) -> str:
    if normal_network(value) is None:
        raise Misfit("ipv4-or-cidr")
    return value


def _naming_a_node(value: str) -> str:
    if problem := node_name_problem(value):
        raise Misfit.of(problem)
    return value


Text = Annotated[str, Field(max_length=COMMENT_MAX, pattern=ONE_LINE)]
"""One line of free text."""
Lines = Annotated[str, Field(pattern=_LINES, json_schema_extra=form("text-of-lines"))]
"""Text of several lines, bounded by the body's size."""
Rows = Annotated[str, Field(json_schema_extra=form("text-of-rows"))]
"""Rows to import: what is wrong with one of them stops no other, so nothing is refused here."""

Name = Annotated[str, Field(min_length=1, max_length=NODE_NAME_MAX, pattern=ONE_LINE)]
NodeName = Annotated[Name, AfterValidator(_naming_a_node)]
Group = Annotated[str, Field(max_length=NODE_NAME_MAX, pattern=ONE_LINE)]
Host = Annotated[str, Field(min_length=1, max_length=HOST_MAX, pattern=ONE_LINE)]
"""An IP address or a host name (RFC 1035)."""
Credential = Annotated[str, Field(max_length=CREDENTIAL_MAX, pattern=ONE_LINE)]
UsedByL2tp = Annotated[str, Field(json_schema_extra=form("text-of-bytes", most=CREDENTIAL_MAX))]
"""A credential of L2TP lines. What other lines are given as one is not looked at, so that this is
for `service` to check.
"""

RuleIp = Annotated[
    str,
    Field(
        pattern=_IPV4_OR_CIDR,
        json_schema_extra=form("ipv4-or-cidr"),
    ),
    AfterValidator(_without_host_bits),
]
Target = Annotated[
    str,
    Field(
        min_length=1,
        max_length=_TARGET_MAX,
        pattern=ONE_LINE,
        json_schema_extra=form("target-form"),
    ),
]
TargetOrEmpty = Annotated[
    str,
    Field(
        max_length=_TARGET_MAX,
        pattern=ONE_LINE,
        json_schema_extra=form("target-form-or-empty"),
    ),
]
InterfaceName = Annotated[
    str,
    Field(
        max_length=INTERFACE_NAME_MAX,
        pattern=rf"^{_INTERFACE}$",
        json_schema_extra=form("interface-form", most=INTERFACE_NAME_MAX),
    ),
]
InterfaceNameOrEmpty = Annotated[
    str,
    Field(
        max_length=INTERFACE_NAME_MAX,
        pattern=rf"^({_INTERFACE})?$",
        json_schema_extra=form("interface-form-or-empty", most=INTERFACE_NAME_MAX),
    ),
]
LineName = Annotated[
    str,
    Field(
        max_length=INTERFACE_NAME_MAX,
        pattern=r"^(l2tp|pptp)_[A-Za-z0-9_.@-]+$",
        json_schema_extra=form("line-name-form", most=INTERFACE_NAME_MAX),
    ),
]
Protocol = Annotated[
    str,
    Field(
        pattern=r"^[a-z0-9_-]{1,32}$",
        json_schema_extra=form("protocol-form"),
    ),
]
ConfigJson = Annotated[
    str,
    Field(
        max_length=CONFIG_MAX,
        pattern=_LINES,
        json_schema_extra=form("text-of-object", most=CONFIG_MAX),
    ),
]
Url = Annotated[
    str,
    Field(
        max_length=URL_MAX,
        pattern=r"^https?://[!-~]+$",
        json_schema_extra=form("url-form", most=URL_MAX),
    ),
]

Id = Annotated[int, Field(ge=1, le=ID_MAX, json_schema_extra=form("id"))]
Port = Annotated[int, Field(ge=1, le=65_535)]
Kbps = Annotated[int, Field(ge=0, le=RULE_LIMIT_MAX_KBPS)]
Index = Annotated[int, Field(ge=0, le=1_000_000_000)]


def decimal(text: Any) -> Any:
    """A number as a path or a query writes it; what is none is left for its field to refuse."""
    # A path or a query holds text. Only plain digits are a number: int() also takes "1_000",
    # "+1" and digits of other scripts.
    return int(text) if isinstance(text, str) and _DECIMAL.fullmatch(text) else text


def _utc(text: object) -> object:
    if not isinstance(text, str) or not is_utc_text(text):
        raise Misfit("utc-time")
    return utc_seconds(text)


IdInPath = Annotated[
    int,
    Path(
        alias="id",
        ge=1,
        le=ID_MAX,
        strict=True,
        json_schema_extra=form("id"),
    ),
    BeforeValidator(decimal),
]
Time = Annotated[
    int,
    BeforeValidator(_utc, json_schema_input_type=str),
    Field(json_schema_extra=form("utc-time")),
]
"""A time in UTC as text, as Unix time."""
Timeout = Annotated[
    int, Field(ge=1, le=DELAY_TIMEOUT_MAX_MS, strict=True), BeforeValidator(decimal)
]
"""Milliseconds, in a query."""
