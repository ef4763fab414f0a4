"""Subscriptions: their fields, the last fetch of each, and the end of a refresh."""

from __future__ import annotations

from typing import Annotated, Any, Final
from urllib.parse import urlsplit

from msgspec import Meta
from pydantic import Field

from egressd.api.wire.answers import Answer, Message
from egressd.api.wire.bodies import Body, Query
from egressd.api.wire.fields import ONE_LINE, Target, form
from egressd.api.wire.objects import FieldsChange
from egressd.model.bounds import FIELD_TEXT_MAX, URL_MAX
from egressd.model.names import NODE_NAME_MAX
from egressd.model.nouns import NodeGone, Subscription
from egressd.model.subscriptions import (
    AGENT_MAX,
    DEFAULT_INTERVAL_S,
    HEADER_NAME_MAX,
    HEADERS_MAX,
    INTERVAL_S,
    RENAMES_MAX,
    AccountQuota,
    LastFetch,
    ListedFate,
    Refreshed,
)
from egressd.model.wording import Coded, Coding, Sentence
from egressd.service.subscription_checks import (
    NAME_MAX,
    PATTERN_MAX,
    SubscriptionDraft,
    headers_of,
    lines_of,
)
from egressd.service.subscriptions import Subscriptions

_ASCII: Final = r"^[ -~]*$"
_NOT_GIVEN: Any = None

SubscriptionName = Annotated[
    str, Field(min_length=1, max_length=NAME_MAX, pattern=ONE_LINE, description="Unique.")
]
ListUrl = Annotated[
    str,
    Field(
        max_length=URL_MAX,
        pattern=r"^https?://[!-~]+$",
        description="The list's URL. It is a secret, and is never shown again.",
        json_schema_extra=form("url", most=URL_MAX),
    ),
]
Agent = Annotated[
    str,
    Field(
        max_length=AGENT_MAX,
        pattern=_ASCII,
        description="The User-Agent of the request, by which many servers choose the form of the "
        "list; empty for egressd's own.",
        json_schema_extra=form("ascii-only"),
    ),
]
Headers = Annotated[
    dict[
        Annotated[
            str,
            Field(
                max_length=HEADER_NAME_MAX,
                pattern=r"^[A-Za-z0-9-]+$",
                json_schema_extra=form("header-name-form", most=HEADER_NAME_MAX),
            ),
        ],
        Annotated[
            str,
            Field(
                max_length=FIELD_TEXT_MAX,
                pattern=_ASCII,
                json_schema_extra=form("ascii-text", most=FIELD_TEXT_MAX),
            ),
        ],
    ],
    Field(
        max_length=HEADERS_MAX,
        description="Further fields of the request's head. They are secrets, and go to the URL's "
        "host alone.",
        json_schema_extra=form("headers-many", most=HEADERS_MAX),
    ),
]
NewNodesGroup = Annotated[
    str,
    Field(
        max_length=NODE_NAME_MAX,
        pattern=ONE_LINE,
        description="The group of nodes that are new; empty for none.",
    ),
]
Interval = Annotated[
    int,
    Field(
        ge=0,
        le=INTERVAL_S[1],
        description=f"Seconds between two fetches, at least {INTERVAL_S[0]}; 0 for what the "
        f"answer names (`profile-update-interval`), else {DEFAULT_INTERVAL_S}.",
    ),
]
FetchedBy = Annotated[
    Target, Field(description="The target that the request leaves by, and nothing else.")
]
NamePattern = Annotated[str, Field(max_length=PATTERN_MAX, pattern=ONE_LINE)]
Include = Annotated[
    NamePattern,
    Field(
        description="A pattern of RE2's: only nodes in whose names there it is found are taken. "
        "Empty for all."
    ),
]
Exclude = Annotated[
    NamePattern,
    Field(
        description="A pattern of RE2's: nodes in whose names there it is found are left out. "
        "Empty for none."
    ),
]
Renaming = Annotated[
    dict[
        Annotated[str, Field(max_length=PATTERN_MAX)],
        Annotated[str, Field(max_length=PATTERN_MAX, pattern=ONE_LINE)],
    ],
    Field(
        max_length=RENAMES_MAX,
        description="Pattern of RE2's -> the text that replaces what it finds in names there, one "
        "after the other; `\\\\1` is the first group. It applies to nodes that are new, or renamed "
        "there.",
        json_schema_extra=form("renames-many", most=RENAMES_MAX),
    ),
]
Gone = Annotated[
    NodeGone,
    Field(
        description="The fate of nodes that the list has no longer. `keep`: what something uses "
        "stays, and is blocked, and the others are removed; `delete`: all are removed."
    ),
]


class SubscriptionCreate(Body):
    """A new subscription."""

    name: SubscriptionName
    url: ListUrl
    user_agent: Agent = ""
    headers: Headers = Field(default={})
    group: NewNodesGroup = ""
    interval_s: Interval = 0
    via: FetchedBy = "DIRECT"
    include: Include = ""
    exclude: Exclude = ""
    rename: Renaming = Field(default={})
    gone: Gone = "keep"
    is_enabled: bool = True

    def draft(self) -> SubscriptionDraft:
        """For `service`."""
        return SubscriptionDraft(**_for_service(vars(self)))


class SubscriptionChange(FieldsChange):
    """Some fields of a subscription; the others stay."""

    name: SubscriptionName = _NOT_GIVEN
    url: ListUrl = _NOT_GIVEN
    user_agent: Agent = _NOT_GIVEN
    headers: Headers = _NOT_GIVEN
    group: NewNodesGroup = _NOT_GIVEN
    interval_s: Interval = _NOT_GIVEN
    via: FetchedBy = _NOT_GIVEN
    include: Include = _NOT_GIVEN
    exclude: Exclude = _NOT_GIVEN
    rename: Renaming = _NOT_GIVEN
    gone: Gone = _NOT_GIVEN
    is_enabled: bool = _NOT_GIVEN

    def given(self) -> dict[str, Any]:
        """Return the fields that were given, as `service` takes them."""
        return _for_service(super().given())


class SubscriptionDelete(Query):
    """The fate of the nodes."""

    nodes: Annotated[
        bool,
        Field(description="Whether its nodes are removed, too; else they stay as your own."),
    ] = False


class SubscriptionRefresh(Body):
    """A refresh, perhaps on trial."""

    dry_run: Annotated[
        bool, Field(description="Whether the list is fetched, and nothing is changed.")
    ] = False


class SubscriptionRow(Answer, frozen=True, kw_only=True):
    """A subscription: without its URL and header fields, which are secrets."""

    id: int
    name: str
    host: Annotated[str, Meta(description="The host of the URL.")]
    user_agent: str
    header_names: tuple[str, ...]
    group: str
    interval_s: int
    via: str
    include: str
    exclude: str
    rename: dict[str, str]
    gone: NodeGone
    is_enabled: bool
    created_at: str
    nodes: Annotated[int, Meta(description="Its nodes, those that are gone included.")]
    nodes_gone: Annotated[
        int, Meta(description="Nodes that the list has no longer: they are used, and blocked.")
    ]
    last: Annotated[LastFetch, Meta(description="The last fetch by this box.")]
    quota: Annotated[
        AccountQuota, Meta(description="As the server names it (`subscription-userinfo`).")
    ]
    next_at: Annotated[str | None, Meta(description="The time of the next fetch by the clock.")]


class SubscriptionRows(Answer, frozen=True, kw_only=True):
    """All subscriptions, by id."""

    data: list[SubscriptionRow]


class SubscriptionSaved(SubscriptionRow, frozen=True, kw_only=True):
    """The subscription as it is stored."""

    msg: Message


class SubscriptionRefreshed(Coding, Answer, frozen=True, kw_only=True):
    """The end of a refresh."""

    msg: Message
    is_refreshed: Annotated[
        bool, Meta(description="False if the list cannot be fetched or read: nothing is changed.")
    ]
    reason: Annotated[Sentence, Meta(description="Why it was not; empty if it was.")]
    reason_coded: Coded | None = None
    refreshed: Refreshed
    nodes: Annotated[tuple[ListedFate, ...], Meta(description="What becomes of each node.")]


def subscription_row(subscriptions: Subscriptions, found: Subscription) -> SubscriptionRow:
    """Return a subscription as lists show it."""
    return SubscriptionRow(**_fields(subscriptions, found))


def subscription_saved(
    subscriptions: Subscriptions, found: Subscription, msg: Message
) -> SubscriptionSaved:
    """Return the answer to a change of a subscription."""
    return SubscriptionSaved(msg=msg, **_fields(subscriptions, found))


def _fields(subscriptions: Subscriptions, found: Subscription) -> dict[str, Any]:
    record = subscriptions.record(found)
    nodes, gone = subscriptions.nodes_of(found.id)
    return {
        "id": found.id,
        "name": found.name,
        "host": urlsplit(found.url).netloc,
        "user_agent": found.user_agent,
        "header_names": tuple(headers_of(found.headers)),
        "group": found.group,
        "interval_s": found.interval_s,
        "via": found.via,
        "include": found.include,
        "exclude": found.exclude,
        "rename": found.rename,
        "gone": found.gone,
        "is_enabled": found.is_enabled,
        "created_at": found.created_at,
        "nodes": nodes,
        "nodes_gone": gone,
        "last": record.last,
        "quota": record.quota,
        "next_at": subscriptions.next_at(found),
    }


def _for_service(fields: dict[str, Any]) -> dict[str, Any]:
    found = dict(fields)
    if "headers" in found:
        found["headers"] = lines_of(found["headers"])
    return found
