"""Rules: which client goes where, and how fast."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

from msgspec import Meta
from pydantic import BeforeValidator, Field, ValidationInfo, field_validator

from egressd.api.wire.answers import Answer, Message
from egressd.api.wire.bodies import Body, Query
from egressd.api.wire.fields import Kbps, Misfit, RuleIp, Target, TargetOrEmpty, Text, decimal
from egressd.model.bounds import BATCH_MAX, MAC_MAX
from egressd.model.drafts import RuleBatch, RuleDraft
from egressd.model.nouns import Rule

Mac = Annotated[
    Text, Field(max_length=MAC_MAX, description="The device's MAC, an annotation only.")
]
Limit = Annotated[Kbps, Field(description="Kbps of 1,000 bit/s; 0 is unlimited.")]
TargetNode = Annotated[Target, Field(description="Where the device's traffic goes.")]


class RuleReplace(Body):
    """A whole rule."""

    ip: Annotated[RuleIp, Field(description="A device's address, or a CIDR of devices.")]
    mac: Mac
    comment: Text
    is_enabled: bool
    target_node: TargetNode
    upload_limit_kbps: Limit
    download_limit_kbps: Limit

    def draft(self) -> RuleDraft:
        """For `service`."""
        return RuleDraft(**vars(self))


class RuleCreate(RuleReplace):
    """A new rule."""

    mac: Mac = ""
    comment: Text = ""
    is_enabled: bool = True
    upload_limit_kbps: Limit = 0
    download_limit_kbps: Limit = 0


class Ips(Body):
    """Rules by IP, with or without ``/32``. Those that are not there are passed over."""

    ips: Annotated[list[RuleIp], Field(max_length=BATCH_MAX)]


class RuleStatusBatch(Ips):
    """A switch for several rules."""

    is_enabled: bool


def _or_one_of(*flags: str) -> Callable[[bool, ValidationInfo], bool]:
    """A check of the last update flag: that it is true, or one of `flags` before it."""

    def check(value: bool, info: ValidationInfo) -> bool:
        # A flag that does not fit is not among the data, and may have been meant to be true.
        if not value and not any(info.data.get(flag, True) for flag in flags):
            raise Misfit("no-update")
        return value

    return check


class RuleLimitsBatch(Ips):
    """New speed limits for several rules. At least one update flag must be true."""

    update_upload: bool = False
    upload_limit_kbps: Limit = 0
    update_download: Annotated[bool, Field(validate_default=True)] = False
    download_limit_kbps: Limit = 0

    _something = field_validator("update_download")(_or_one_of("update_upload"))

    def echo(self) -> dict[str, Any]:
        """Return the fields that the answer repeats."""
        return self.model_dump(exclude={"ips"})

    def draft(self) -> RuleBatch:
        """For `service`."""
        return RuleBatch(
            ips=tuple(self.ips),
            upload_limit_kbps=self.upload_limit_kbps if self.update_upload else None,
            download_limit_kbps=self.download_limit_kbps if self.update_download else None,
        )


class RuleBatchUpdate(Ips):
    """A new target, new speed limits or both. At least one update flag must be true."""

    update_target: bool = False
    target_node: Annotated[TargetOrEmpty, Field(validate_default=True)] = ""
    update_upload: bool = False
    upload_limit_kbps: Limit = 0
    update_download: Annotated[bool, Field(validate_default=True)] = False
    download_limit_kbps: Limit = 0

    _something = field_validator("update_download")(_or_one_of("update_target", "update_upload"))

    @field_validator("target_node")
    @classmethod
    def _named(cls, value: str, info: ValidationInfo) -> str:
        if not value and info.data.get("update_target"):
            raise Misfit("no-target")
        return value

    def echo(self) -> dict[str, Any]:
        """Return the fields that the answer repeats."""
        return self.model_dump(exclude={"ips"})

    def draft(self) -> RuleBatch:
        """For `service`."""
        return RuleBatch(
            ips=tuple(self.ips),
            target_node=self.target_node if self.update_target else None,
            upload_limit_kbps=self.upload_limit_kbps if self.update_upload else None,
            download_limit_kbps=self.download_limit_kbps if self.update_download else None,
        )


class RuleRow(Answer, frozen=True, kw_only=True):
    """A rule."""

    id: int
    ip: Annotated[str, Meta(description="An address without /32, or a CIDR.")]
    mac: str
    comment: str
    is_enabled: bool
    target_node: str
    upload_limit_kbps: int
    download_limit_kbps: int
    created_at: str
    updated_at: str


class RuleRows(Answer, frozen=True, kw_only=True):
    """All rules, by id."""

    data: list[RuleRow]


class SinceQuery(Query):
    """The revision that the caller already has."""

    since: Annotated[
        int,
        Field(ge=0, le=2**53, strict=True, description="A revision; 0 for all rules."),
        BeforeValidator(decimal),
    ] = 0


class RulesSince(Answer, frozen=True, kw_only=True):
    """The rules to put and the ids to remove, to have the rules of `revision`."""

    revision: int
    is_whole: Annotated[bool, Meta(description="Whether changed holds all rules there are.")]
    changed: Annotated[list[RuleRow], Meta(description="By id.")]
    gone: Annotated[list[int], Meta(description="Ids.")]


class RuleSwitched(Answer, frozen=True, kw_only=True):
    """A rule's new state."""

    msg: Message
    id: int
    ip: str
    is_enabled: bool


class RuleDeleted(Answer, frozen=True, kw_only=True):
    """The rule that was deleted."""

    msg: Message
    id: int
    ip: str


class RulesSwitched(Answer, frozen=True, kw_only=True):
    """The number of named rules that exist; all of them are in that state now."""

    msg: Message
    updated: int
    is_enabled: bool


class RuleLimitsUpdated(Answer, frozen=True, kw_only=True):
    """The number of updated rules, and the values that they got."""

    msg: Message
    updated: int
    upload_limit_kbps: int
    download_limit_kbps: int
    update_upload: bool
    update_download: bool


class RulesUpdated(RuleLimitsUpdated, frozen=True, kw_only=True):
    """The number of updated rules, and the values that they got."""

    target_node: str
    update_target: bool


def rule_row(rule: Rule) -> RuleRow:
    """The rule as lists show it."""
    return RuleRow(
        id=rule.id,
        ip=rule.host,
        mac=rule.mac,
        comment=rule.comment,
        is_enabled=rule.is_enabled,
        target_node=rule.target_node,
        upload_limit_kbps=rule.upload_limit_kbps,
        download_limit_kbps=rule.download_limit_kbps,
        created_at=rule.created_at,
        updated_at=rule.updated_at,
    )
