"""``/rules``."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any

from fastapi import FastAPI, Query
from starlette.requests import Request
from starlette.responses import Response

from egressd.api.endpoints import LARGE_BODY, OPS_PREFIX, Endpoints
from egressd.api.lists import CachedList, Versions, ZippedAnswer, send
from egressd.api.services import Services
from egressd.api.wire.answers import (
    Deleted,
    Imported,
    Said,
    SaidId,
    done,
    imported,
    reply,
    switched,
)
from egressd.api.wire.bodies import StatusUpdate, TextImport
from egressd.api.wire.fields import IdInPath
from egressd.api.wire.rules import (
    Ips,
    RuleBatchUpdate,
    RuleCreate,
    RuleDeleted,
    RuleLimitsBatch,
    RuleLimitsUpdated,
    RuleReplace,
    RuleRows,
    RulesSince,
    RulesSwitched,
    RuleStatusBatch,
    RulesUpdated,
    RuleSwitched,
    SinceQuery,
    rule_row,
)
from egressd.model.nouns import Rule
from egressd.model.wording import say

_BODY: dict[str, Any] = {
    "ip": "192.168.8.21",
    "mac": "3c:22:fb:01:9a:7e",
    "comment": "living room",
    "is_enabled": True,
    "target_node": "Group_hk",
    "upload_limit_kbps": 0,
    "download_limit_kbps": 50_000,
}
_ROW = {
    "id": 7,
    **_BODY,
    "created_at": "2026-11-20T22:58:40Z",
    "updated_at": "2026-11-20T22:58:40Z",
}
_IPS = ["192.168.8.21", "192.168.8.22"]
_NOT_THERE = "there is no rule with the id 7"


def add(app: FastAPI, services: Services) -> None:
    """Declare the endpoints."""
    endpoints = Endpoints(app, "Rules")
    rules = services.rules
    listed = CachedList()

    @endpoints.add("GET", "/rules", "List rules", answer=RuleRows, example={"data": [_ROW]})
    async def list_rules(request: Request) -> Response:
        return send(
            request, listed.listing(services.ledger.revision, lambda: map(rule_row, rules.list()))
        )

    versions = Versions[Rule]()
    whole = ZippedAnswer()

    @Endpoints(app, "Operations", OPS_PREFIX).add(
        "GET",
        "/rules",
        "The changes of the rules since a revision",
        answer=RulesSince,
        example={"revision": 815, "is_whole": False, "changed": [_ROW], "gone": [3]},
    )
    async def rules_since(request: Request, query: Annotated[SinceQuery, Query()]) -> Response:
        """Return the changes of the rules. Send no `since` at first, then the `revision` of the
        last answer: all rules come again only if that revision is long past.
        """
        state = services.ledger.state
        difference = versions.since(query.since, state.revision, state.rules)

        def since(changed: Iterable[Rule], gone: list[int]) -> RulesSince:
            return RulesSince(
                revision=state.revision,
                is_whole=difference is None,
                changed=list(map(rule_row, changed)),
                gone=gone,
            )

        if difference is None:
            return whole.response(request, state.revision, lambda: since(rules.list(), []))
        return reply(since(*difference))

    @endpoints.add(
        "POST",
        "/rules",
        "Create a rule",
        body=_BODY,
        answer=Said,
        example={"msg": "rule for 192.168.8.21 created"},
    )
    async def create_rule(body: RuleCreate) -> Response:
        outcome = await rules.create(body.draft())
        return reply(Said(msg=done(say("rule-created", ip=outcome.value.host), outcome.notes)))

    @endpoints.add(
        "PUT",
        "/rules/{id}",
        "Replace a rule",
        body=_BODY,
        answer=SaidId,
        example={"msg": "rule for 192.168.8.21 saved", "id": 7},
        refusal=_NOT_THERE,
    )
    async def replace_rule(rule_id: IdInPath, body: RuleReplace) -> Response:
        outcome = await rules.replace(rule_id, body.draft())
        return reply(
            SaidId(msg=done(say("rule-saved", ip=outcome.value.host), outcome.notes), id=rule_id)
        )

    @endpoints.add(
        "PATCH",
        "/rules/{id}/status",
        "Enable or disable a rule",
        body={"is_enabled": False},
        answer=RuleSwitched,
        example={
            "msg": "rule for 192.168.8.21 disabled",
            "id": 7,
            "ip": "192.168.8.21",
            "is_enabled": False,
        },
        refusal=_NOT_THERE,
    )
    async def set_rule_status(rule_id: IdInPath, body: StatusUpdate) -> Response:
        outcome = await rules.set_enabled(rule_id, body.is_enabled)
        rule = outcome.value
        return reply(
            RuleSwitched(
                msg=done(say(f"rule-{switched(rule.is_enabled)}", ip=rule.host), outcome.notes),
                id=rule_id,
                ip=rule.host,
                is_enabled=rule.is_enabled,
            )
        )

    @endpoints.add(
        "DELETE",
        "/rules/{id}",
        "Delete a rule",
        answer=RuleDeleted,
        example={"msg": "rule for 192.168.8.21 deleted", "id": 7, "ip": "192.168.8.21"},
        refusal=_NOT_THERE,
    )
    async def delete_rule(rule_id: IdInPath) -> Response:
        outcome = await rules.delete(rule_id)
        ip = outcome.value.host
        return reply(
            RuleDeleted(msg=done(say("rule-deleted", ip=ip), outcome.notes), id=rule_id, ip=ip)
        )

    @endpoints.add(
        "DELETE",
        "/rules/batch",
        "Delete several rules",
        body={"ips": _IPS},
        answer=Deleted,
        example={"msg": "2 rules deleted", "deleted": 2},
    )
    async def delete_rules(body: Ips) -> Response:
        outcome = await rules.delete_many(body.ips)
        number = outcome.value
        msg = done(say("some-deleted", n=number, thing="rule"), outcome.notes)
        return reply(Deleted(msg=msg, deleted=number))

    @endpoints.add(
        "PATCH",
        "/rules/batch/status",
        "Enable or disable several rules",
        body={"ips": _IPS, "is_enabled": True},
        answer=RulesSwitched,
        example={"msg": "2 rules enabled", "updated": 2, "is_enabled": True},
    )
    async def set_rules_status(body: RuleStatusBatch) -> Response:
        outcome = await rules.set_enabled_many(body.ips, body.is_enabled)
        number = outcome.value
        msg = done(say(f"some-{switched(body.is_enabled)}", n=number, thing="rule"), outcome.notes)
        return reply(RulesSwitched(msg=msg, updated=number, is_enabled=body.is_enabled))

    @endpoints.add(
        "PATCH",
        "/rules/batch",
        "Change the target and the limits of several rules",
        body={
            "ips": _IPS,
            "update_target": True,
            "target_node": "DIRECT",
            "update_upload": False,
            "upload_limit_kbps": 0,
            "update_download": True,
            "download_limit_kbps": 20_000,
        },
        answer=RulesUpdated,
        example={
            "msg": "2 rules updated",
            "updated": 2,
            "target_node": "DIRECT",
            "update_target": True,
            "update_upload": False,
            "update_download": True,
            "upload_limit_kbps": 0,
            "download_limit_kbps": 20_000,
        },
    )
    async def update_rules(body: RuleBatchUpdate) -> Response:
        outcome = await rules.update_many(body.draft())
        return reply(
            RulesUpdated(
                msg=done(say("some-updated", n=outcome.value, thing="rule"), outcome.notes),
                updated=outcome.value,
                **body.echo(),
            )
        )

    @endpoints.add(
        "PATCH",
        "/rules/batch/limits",
        "Change the limits of several rules",
        body={
            "ips": _IPS,
            "update_upload": True,
            "upload_limit_kbps": 5_000,
            "update_download": False,
            "download_limit_kbps": 0,
        },
        answer=RuleLimitsUpdated,
        example={
            "msg": "2 rules updated",
            "updated": 2,
            "upload_limit_kbps": 5_000,
            "download_limit_kbps": 0,
            "update_upload": True,
            "update_download": False,
        },
    )
    async def limit_rules(body: RuleLimitsBatch) -> Response:
        outcome = await rules.update_many(body.draft())
        return reply(
            RuleLimitsUpdated(
                msg=done(say("some-updated", n=outcome.value, thing="rule"), outcome.notes),
                updated=outcome.value,
                **body.echo(),
            )
        )

    @endpoints.add(
        "POST",
        "/rules/import",
        "Import rules",
        body={"text": "192.168.8.21,Group_hk,living room\n192.168.8.22,DIRECT", "replace": False},
        body_max=LARGE_BODY,
        answer=Imported,
        example={"msg": "2 rules imported, 0 skipped", "imported": 2, "skipped": 0},
    )
    async def import_rules(body: TextImport) -> Response:
        """Rows are `IP,target,comment`."""
        outcome = await rules.import_rows(body.text, replace=body.replace)
        return reply(imported("rule", outcome))
