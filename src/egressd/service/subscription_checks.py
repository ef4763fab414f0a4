"""The valid fields of subscriptions. Each check yields the faults of one field."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final
from urllib.parse import urlsplit

import msgspec

from egressd.model.bounds import FIELD_TEXT_MAX
from egressd.model.faults import Fault, fault
from egressd.model.nouns import NODE_GONE, NodeGone, Subscription
from egressd.model.subscriptions import (
    AGENT_MAX,
    HEADER_NAME_MAX,
    HEADERS_MAX,
    INTERVAL_S,
    RENAMES_MAX,
)
from egressd.planner.name_filters import FILTER_MAX, places_fit
from egressd.service import checks
from egressd.service.alert_checks import blocking_problems
from egressd.service.servers import ServerSurroundings

NAME_MAX: Final = 64
PATTERN_MAX: Final = FILTER_MAX
"""Characters of a pattern over names."""
_HEADER_NAME: Final = re.compile(rf"[A-Za-z0-9-]{{1,{HEADER_NAME_MAX}}}")
_HEADER_TEXT: Final = re.compile(r"[ -~]*")
_OWN_HEADERS: Final = frozenset(
    {
        "accept-encoding",
        "connection",
        "content-length",
        "host",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
        "user-agent",
    }
)
"""Fields of a request that are the client's own."""


class SubscriptionDraft(msgspec.Struct, frozen=True, kw_only=True):
    """The fields of a subscription, as `Subscription` has them."""

    name: str
    url: str
    user_agent: str = ""
    headers: str = ""
    group: str = ""
    interval_s: int = 0
    via: str = "DIRECT"
    include: str = ""
    exclude: str = ""
    rename: dict[str, str] = {}
    gone: NodeGone = "keep"
    is_enabled: bool = True

    def __repr__(self) -> str:
        """Return a text without the secrets."""
        return f"SubscriptionDraft(name={self.name!r}, via={self.via!r})"


def headers_of(text: str) -> dict[str, str]:
    """Return the fields of stored lines."""
    pairs = (line.partition(":") for line in text.split("\n") if line)
    return {name: value.strip() for name, _, value in pairs}


def lines_of(headers: Mapping[str, str]) -> str:
    """Return fields as they are stored."""
    return "\n".join(f"{name}: {value}" for name, value in headers.items())


def header_problems(headers: Mapping[str, str]) -> Iterator[Fault]:
    """Yield every fault of the fields of a request's head."""
    if len(headers) > HEADERS_MAX:
        yield fault("headers", "headers-many", most=HEADERS_MAX)
    for name, value in headers.items():
        if not _HEADER_NAME.fullmatch(name):
            yield fault("headers", "header-name")
        elif name.lower() in _OWN_HEADERS:
            yield fault("headers", "header-own", name=name)
        elif len(value) > FIELD_TEXT_MAX or not _HEADER_TEXT.fullmatch(value):
            yield fault("headers", "header-text", name=name, most=FIELD_TEXT_MAX)


def field_problems(draft: SubscriptionDraft | Subscription) -> Iterator[Fault]:
    """Yield every fault that can be found without the state."""
    yield from checks.text("name", draft.name, NAME_MAX, least=1)
    yield from checks.page_url("url", draft.url)
    yield from checks.text("user_agent", draft.user_agent, AGENT_MAX)
    if not _HEADER_TEXT.fullmatch(draft.user_agent):
        yield fault("user_agent", "ascii-only")
    yield from header_problems(headers_of(draft.headers))
    yield from checks.group("group", draft.group)
    if draft.interval_s:
        yield from checks.whole("interval_s", draft.interval_s, *INTERVAL_S)
    for field, pattern in (("include", draft.include), ("exclude", draft.exclude)):
        yield from checks.name_filter(field, pattern)
    yield from _rename_problems(draft.rename)
    yield from checks.one_of("gone", draft.gone, NODE_GONE)
    yield from checks.stored_target("via", draft.via)
    yield from blocking_problems(draft.via)


def inner_problems(url: str, around: ServerSurroundings) -> Iterator[Fault]:
    """Yield the fault that a URL names an address of this device, or of a LAN, unless it has
    another fault.
    """
    if any(True for _ in checks.page_url("url", url)):
        return
    if address := around.near_address(urlsplit(url).hostname or ""):
        yield fault("url", "errand-host-inner", host=str(address))


def _rename_problems(rename: Mapping[str, str]) -> Iterator[Fault]:
    if len(rename) > RENAMES_MAX:
        yield fault("rename", "renames-many", most=RENAMES_MAX)
        return
    for pattern, replacement in rename.items():
        found = [*checks.name_filter("", pattern), *checks.text("", replacement, FILTER_MAX)]
        if not pattern:
            found.append(fault("", "empty"))
        if not found and not places_fit(pattern, replacement):
            found.append(fault("", "rename-place"))
        yield from (each.inside("rename", pattern[:100]) for each in found)
