"""Groups: their settings, and what they mean now."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

import msgspec
from fastapi import Path
from msgspec import Meta
from pydantic import AfterValidator, Field

from egressd.api.wire.answers import Answer, Message
from egressd.api.wire.bodies import Body, Query
from egressd.api.wire.fields import ONE_LINE, Host, Misfit, form
from egressd.api.wire.objects import FieldsChange
from egressd.model.bounds import URL_MAX
from egressd.model.names import GROUP_PREFIX, NODE_NAME_MAX
from egressd.model.nouns import NEVER, GroupStrategy, OnSwitch, TargetGroup
from egressd.service.group_checks import (
    CHECK_INTERVAL_S,
    FAILBACK_MAX_MIN,
    MEMBERS_MAX,
    PATTERN_MAX,
    ROTATE_EVERY_S,
    TOLERANCE_MAX_MS,
    WEIGHT,
    GroupDraft,
)
from egressd.service.group_views import GroupMember, GroupView

AT_ONCE: Final = "at_once"
NOT_AT_ALL: Final = "never"
_MEMBER_MAX: Final = len(GROUP_PREFIX) + NODE_NAME_MAX
_NOT_GIVEN: Any = None


def _failback(value: Any) -> Any:
    if isinstance(value, int) and not isinstance(value, bool):
        is_fit = 1 <= value <= FAILBACK_MAX_MIN
    else:
        is_fit = value in (AT_ONCE, NOT_AT_ALL)
    if not is_fit:
        raise Misfit("failback-form", least=1, most=FAILBACK_MAX_MIN)
    return value


GroupName = Annotated[
    str,
    Field(
        min_length=1,
        max_length=NODE_NAME_MAX,
        pattern=ONE_LINE,
        description="Rules name the group `Group_` and this.",
    ),
]
GroupNameInPath = Annotated[
    str,
    Path(
        alias="name",
        min_length=1,
        max_length=NODE_NAME_MAX,
        description="The group's name, without `Group_`.",
    ),
]
Strategy = Annotated[
    Literal["", "urltest", "fallback", "sticky", "spread"],
    Field(description="Empty for the device's `group_strategy`."),
]
Member = Annotated[
    str,
    Field(
        min_length=1,
        max_length=_MEMBER_MAX,
        pattern=ONE_LINE,
        json_schema_extra=form("group-member"),
    ),
]
Members = Annotated[
    list[Member],
    Field(
        max_length=MEMBERS_MAX,
        description="Targets in order, before the nodes that bear the group's name. A group stands "
        "for its members. An interface may appear later.",
    ),
]
Weights = Annotated[
    dict[
        Annotated[str, Field(max_length=_MEMBER_MAX)],
        Annotated[int, Field(ge=WEIGHT[0], le=WEIGHT[1])],
    ],
    Field(
        max_length=MEMBERS_MAX,
        description="Member -> its part of the clients with `spread`; 1 without an entry.",
        json_schema_extra=form("group-weights", least=WEIGHT[0], most=WEIGHT[1]),
    ),
]
NameFilter = Annotated[
    str,
    Field(
        max_length=PATTERN_MAX,
        pattern=ONE_LINE,
        description="A pattern of RE2's: nodes are members in whose names it is found. Empty for "
        "none.",
    ),
]
CheckUrl = Annotated[
    str,
    Field(
        max_length=URL_MAX,
        pattern=r"^(https?://[!-~]+)?$",
        description="Fetched through each member; empty for the device's `delay_url`.",
        json_schema_extra=form("url", most=URL_MAX),
    ),
]
CheckInterval = Annotated[
    int,
    Field(
        ge=CHECK_INTERVAL_S[0],
        le=CHECK_INTERVAL_S[1],
        description="Seconds between checks of a member.",
    ),
]
Tolerance = Annotated[
    int,
    Field(
        ge=0,
        le=TOLERANCE_MAX_MS,
        description="With `urltest`, the milliseconds by which another member must be faster.",
    ),
]
Failback = Annotated[
    Any,
    Field(
        description="When clients return to a better member: `at_once`, `never`, or after so many "
        "minutes in which it was healthy.",
        json_schema_extra={
            "anyOf": [
                {"enum": [AT_ONCE, NOT_AT_ALL]},
                {"type": "integer", "minimum": 1, "maximum": FAILBACK_MAX_MIN},
            ],
            **form("failback-form", least=1, most=FAILBACK_MAX_MIN),
        },
    ),
    AfterValidator(_failback),
]
Switch = Annotated[
    OnSwitch,
    Field(
        description="The fate of open connections if another member is chosen while theirs lives."
    ),
]

RotateEvery = Annotated[
    int,
    Field(
        ge=0,
        le=ROTATE_EVERY_S[1],
        description="With `sticky`, the seconds after which each client gets another member, at "
        f"least {ROTATE_EVERY_S[0]}; 0 for never.",
    ),
]


class GroupsQuery(Query):
    """The part of groups that is asked for."""

    resolved: Annotated[
        bool, Field(description="Whether groups have their members; else `resolved` is empty.")
    ] = True


class GroupReplace(Body):
    """All settings of a group."""

    strategy: Strategy
    members: Members
    weights: Weights
    filter: NameFilter
    check_url: CheckUrl
    check_interval_s: CheckInterval
    tolerance_ms: Tolerance
    failback: Failback
    on_switch: Switch
    rotate_every_s: RotateEvery = 0

    def draft(self) -> GroupDraft:
        """For `service`."""
        return GroupDraft(**_for_service(vars(self)))


class GroupCreate(Body):
    """A group, and its settings."""

    name: GroupName
    strategy: Strategy = ""
    members: Members = Field(default=[])
    weights: Weights = Field(default={})
    filter: NameFilter = ""
    check_url: CheckUrl = ""
    check_interval_s: CheckInterval = 10
    tolerance_ms: Tolerance = 50
    failback: Failback = AT_ONCE
    on_switch: Switch = "keep"
    rotate_every_s: RotateEvery = 0

    def draft(self) -> GroupDraft:
        """For `service`, without the name."""
        fields = {key: value for key, value in vars(self).items() if key != "name"}
        return GroupDraft(**_for_service(fields))


class GroupChange(FieldsChange):
    """Some settings of a group. Weights of targets that are no members any more go, too."""

    strategy: Strategy = _NOT_GIVEN
    members: Members = _NOT_GIVEN
    weights: Weights = _NOT_GIVEN
    filter: NameFilter = _NOT_GIVEN
    check_url: CheckUrl = _NOT_GIVEN
    check_interval_s: CheckInterval = _NOT_GIVEN
    tolerance_ms: Tolerance = _NOT_GIVEN
    failback: Failback = _NOT_GIVEN
    on_switch: Switch = _NOT_GIVEN
    rotate_every_s: RotateEvery = _NOT_GIVEN

    def given(self) -> dict[str, Any]:
        """Return the fields that were given, as `service` takes them."""
        return _for_service(super().given())


def _for_service(fields: dict[str, Any]) -> dict[str, Any]:
    found = dict(fields)
    if "members" in found:
        found["members"] = tuple(found["members"])
    if "failback" in found:
        failback = found.pop("failback")
        found["failback_min"] = {AT_ONCE: 0, NOT_AT_ALL: NEVER}.get(failback, failback)
    return found


class GroupRow(Answer, frozen=True, kw_only=True):
    """A group's settings, and what they mean now."""

    name: str
    has_settings: Annotated[
        bool,
        Meta(description="False if it is only the nodes that bear its name."),
    ]
    strategy: Annotated[str, Meta(description="Empty for the device's `group_strategy`.")]
    members: tuple[str, ...]
    weights: dict[str, int]
    filter: str
    check_url: str
    check_interval_s: int
    tolerance_ms: int
    failback: int | str
    on_switch: OnSwitch
    rotate_every_s: int
    created_at: Annotated[str, Meta(description="Of the settings; empty without any.")]
    strategy_in_force: GroupStrategy
    rules: Annotated[int, Meta(description="Enabled rules that name the group.")]
    resolved: Annotated[tuple[GroupMember, ...], Meta(description="All members, in order.")]
    missing: Annotated[tuple[str, ...], Meta(description="Targets in `members` that do not exist.")]


class GroupRows(Answer, frozen=True, kw_only=True):
    """All groups, by name."""

    data: list[GroupRow]


class GroupSaved(GroupRow, frozen=True, kw_only=True):
    """The group as it is stored."""

    msg: Message


class GroupRotate(Body):
    """The clients that get another member."""

    client: Annotated[
        Host | None, Field(description="One client, with a rule of its own; null for all.")
    ] = None


class GroupRotated(Answer, frozen=True, kw_only=True):
    """New connections go by other members."""

    msg: Message
    clients: Annotated[int, Meta(description="Clients with a rule of their own that moved.")]
    member: Annotated[
        str, Meta(description="The new member of the one client, as rules name it; else empty.")
    ]


class SaidName(Answer, frozen=True, kw_only=True):
    """It is stored."""

    msg: Message
    name: str


def group_row(view: GroupView) -> GroupRow:
    """Return a group as lists show it."""
    return GroupRow(**_fields(view))


def group_saved(view: GroupView, msg: Message) -> GroupSaved:
    """Return the answer to a change of a group."""
    return GroupSaved(msg=msg, **_fields(view))


def _fields(view: GroupView) -> dict[str, Any]:
    return {
        **_settings(view.settings),
        "has_settings": view.has_settings,
        "strategy_in_force": view.strategy,
        "rules": view.rules,
        "resolved": view.resolved,
        "missing": view.missing,
    }


def _settings(group: TargetGroup) -> dict[str, Any]:
    fields = msgspec.structs.asdict(group)
    del fields["id"]
    failback = fields.pop("failback_min")
    return {**fields, "failback": {0: AT_ONCE, NEVER: NOT_AT_ALL}.get(failback, failback)}
