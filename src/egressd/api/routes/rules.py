"""``/rules``."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any, Final

from fastapi import Depends, Query
from starlette.requests import Request
from starlette.responses import Response

from egressd.api.dependencies import ServicesDep, per_application
from egressd.api.endpoints import OPS_PREFIX
from egressd.api.lists import Versions, ZippedAnswer, send_cached
from egressd.api.routers import Resource, Router
from egressd.api.wire.answers import Imported, Said, SaidId, reply
from egressd.api.wire.bodies import StatusUpdate, TextImport
from egressd.api.wire.fields import IdInPath
from egressd.api.wire.outcomes import (
    done,
    imported,
    many_deleted,
    switched,
    switched_many,
    updated_many,
)
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

_RULE: Final = "rule"
_BODY: Final[dict[str, Any]] = {
    "ip": "192.168.8.21",
    "mac": "3c:22:fb:01:9a:7e",
    "comment": "living room",
    "is_enabled": True,
    "target_node": "Group_hk",
    "upload_limit_kbps": 0,
    "download_limit_kbps": 50_000,
}
_ROW: Final = {
    "id": 7,
    **_BODY,
    "created_at": "2026-11-20T22:58:40Z",
    "updated_at": "2026-11-20T22:58:40Z",
}
_IPS: Final = ["192.168.8.21", "192.168.8.22"]

router: Final = Router("Rules")
operations: Final = Router("Operations", OPS_PREFIX)
resource: Final = Resource(router, "/rules", _RULE, row=_ROW, body=_BODY)

KeptVersions = Annotated[Versions[Rule], Depends(per_application(Versions[Rule]))]
KeptWhole = Annotated[ZippedAnswer, Depends(per_application(ZippedAnswer))]


@resource.list(RuleRows)
async def list_rules(request: Request, services: ServicesDep) -> Response:
    revision = services.ledger.revision
    return send_cached(request, revision, lambda: map(rule_row, services.rules.list()))


@operations.get(
    "/rules",
    "The changes of the rules since a revision",
    answer=RulesSince,
    example={"revision": 815, "is_whole": False, "changed": [_ROW], "gone": [3]},
    scope="read",
)
async def rules_since(
    request: Request,
    query: Annotated[SinceQuery, Query()],
    services: ServicesDep,
    versions: KeptVersions,
    whole: KeptWhole,
) -> Response:
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
        return whole.response(request, state.revision, lambda: since(services.rules.list(), []))
    return reply(since(*difference))


@router.post(
    "/rules",
    "Create a rule",
    body=_BODY,
    answer=Said,
    example={"msg": "rule for 192.168.8.21 created"},
)
async def create_rule(body: RuleCreate, services: ServicesDep) -> Response:
    outcome = await services.rules.create(body.draft())
    return reply(Said(msg=done(say("rule-created", ip=outcome.value.host), outcome.notes)))


@router.put(
    "/rules/{id}",
    "Replace a rule",
    body=_BODY,
    answer=SaidId,
    example={"msg": "rule for 192.168.8.21 saved", "id": 7},
    refusal=resource.missing,
)
async def replace_rule(rule_id: IdInPath, body: RuleReplace, services: ServicesDep) -> Response:
    outcome = await services.rules.replace(rule_id, body.draft())
    return reply(
        SaidId(msg=done(say("rule-saved", ip=outcome.value.host), outcome.notes), id=rule_id)
    )


@resource.switch(
    RuleSwitched,
    {
        "msg": "rule for 192.168.8.21 disabled",
        "id": 7,
        "ip": "192.168.8.21",
        "is_enabled": False,
    },
)
async def set_rule_status(rule_id: IdInPath, body: StatusUpdate, services: ServicesDep) -> Response:
    outcome = await services.rules.set_enabled(rule_id, body.is_enabled)
    rule = outcome.value
    return reply(
        RuleSwitched(
            msg=done(say(f"rule-{switched(rule.is_enabled)}", ip=rule.host), outcome.notes),
            id=rule_id,
            ip=rule.host,
            is_enabled=rule.is_enabled,
        )
    )


@router.delete(
    "/rules/{id}",
    "Delete a rule",
    answer=RuleDeleted,
    example={"msg": "rule for 192.168.8.21 deleted", "id": 7, "ip": "192.168.8.21"},
    refusal=resource.missing,
)
async def delete_rule(rule_id: IdInPath, services: ServicesDep) -> Response:
    outcome = await services.rules.delete(rule_id)
    ip = outcome.value.host
    return reply(
        RuleDeleted(msg=done(say("rule-deleted", ip=ip), outcome.notes), id=rule_id, ip=ip)
    )


@resource.delete_many({"ips": _IPS})
async def delete_rules(body: Ips, services: ServicesDep) -> Response:
    return many_deleted(_RULE, await services.rules.delete_many(body.ips))


@resource.switch_many({"ips": _IPS}, RulesSwitched, is_enabled=True)
async def set_rules_status(body: RuleStatusBatch, services: ServicesDep) -> Response:
    outcome = await services.rules.set_enabled_many(body.ips, body.is_enabled)
    msg = switched_many(_RULE, outcome, body.is_enabled)
    return reply(RulesSwitched(msg=msg, updated=outcome.value, is_enabled=body.is_enabled))


@router.patch(
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
async def update_rules(body: RuleBatchUpdate, services: ServicesDep) -> Response:
    outcome = await services.rules.update_many(body.draft())
    return reply(
        RulesUpdated(
            msg=updated_many(_RULE, outcome),
            updated=outcome.value,
            **body.echo(),
        )
    )


@router.patch(
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
async def limit_rules(body: RuleLimitsBatch, services: ServicesDep) -> Response:
    outcome = await services.rules.update_many(body.draft())
    return reply(
        RuleLimitsUpdated(
            msg=updated_many(_RULE, outcome),
            updated=outcome.value,
            **body.echo(),
        )
    )


@resource.import_rows(
    body={"text": "192.168.8.21,Group_hk,living room\n192.168.8.22,DIRECT", "replace": False},
    answer=Imported,
    example={"imported": 2, "skipped": 0},
)
async def import_rules(body: TextImport, services: ServicesDep) -> Response:
    """Rows are `IP,target,comment`."""
    return imported(_RULE, await services.rules.import_rows(body.text, replace=body.replace))
