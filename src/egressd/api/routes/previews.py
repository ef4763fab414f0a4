"""``/ops/preview``: what an import would do, without doing it."""

from __future__ import annotations

from typing import Final

from starlette.responses import Response

from egressd.api.dependencies import ServicesDep
from egressd.api.endpoints import LARGE_BODY, OPS_PREFIX
from egressd.api.routers import Router
from egressd.api.wire.answers import reply
from egressd.api.wire.bodies import TextImport
from egressd.api.wire.lines import LineImport
from egressd.api.wire.nodes import NodeListImport
from egressd.api.wire.operations import (
    Preview,
    PreviewFate,
    PreviewRow,
    RecognisedText,
    TextToRecognise,
)
from egressd.model.drafts import ImportOutcome
from egressd.model.problem import errors_of
from egressd.service.recognition import recognised

_PREVIEW: Final = {
    "imported": 1,
    "skipped": 1,
    "bad": 1,
    "errors": ["line 2: ip must be an IPv4 address or a CIDR without host bits"],
    "bad_rows": [
        {
            "line": 2,
            "errors": [
                {
                    "pointer": "/ip",
                    "code": "ipv4-or-cidr",
                    "values": {},
                    "detail": "ip must be an IPv4 address or a CIDR without host bits",
                }
            ],
        }
    ],
    "notes": [],
    "fates": [{"line": 1, "fate": "changed", "name": "hk-01", "changed": ["port"]}],
    "removed": 0,
    "removed_names": [],
}
_NAMED_MAX: Final = 10

router: Final = Router("Operations", OPS_PREFIX)


@router.post(
    "/preview/rules",
    "Preview an import of rules",
    body={"text": "192.168.8.21,Group_hk,living room", "replace": False},
    body_max=LARGE_BODY,
    answer=Preview,
    example=_PREVIEW,
    scope="write",
)
async def preview_rules(body: TextImport, services: ServicesDep) -> Response:
    return _previewed(
        await services.rules.import_rows(body.text, replace=body.replace, preview=True)
    )


@router.post(
    "/preview/nodes",
    "Preview an import of nodes",
    body={"type": "socks5", "text": "203.0.113.7,1080,u,p,hk-01"},
    body_max=LARGE_BODY,
    answer=Preview,
    example=_PREVIEW,
    scope="write",
)
async def preview_nodes(body: NodeListImport, services: ServicesDep) -> Response:
    return _previewed(
        await services.nodes.import_rows(
            body.type,
            body.text,
            replace=body.replace,
            group=body.group,
            auto_name=body.auto_node_name,
            start_index=body.auto_node_name_start_index,
            private_servers=body.private_servers,
            preview=True,
        )
    )


@router.post(
    "/preview/vpn-lines",
    "Preview an import of VPN lines",
    body={"type": "l2tp", "text": "vpn.example.com,u,p,secret,l2tp_1,tokyo"},
    body_max=LARGE_BODY,
    answer=Preview,
    example=_PREVIEW,
    scope="write",
)
async def preview_lines(body: LineImport, services: ServicesDep) -> Response:
    return _previewed(
        await services.lines.import_rows(
            body.type,
            body.text,
            auto_name=body.auto_line_name,
            start_index=body.auto_line_name_start_index,
            preview=True,
        )
    )


@router.post(
    "/preview/proxy-services",
    "Preview an import of proxy services",
    body={"text": "scraper,wan1,18080,office,correct horse", "replace": False},
    body_max=LARGE_BODY,
    answer=Preview,
    example=_PREVIEW,
    scope="write",
)
async def preview_proxy_services(body: TextImport, services: ServicesDep) -> Response:
    return _previewed(
        await services.proxy_services.import_rows(body.text, replace=body.replace, preview=True)
    )


@router.post(
    "/recognise/nodes",
    "Recognise the form of nodes to import",
    body={"text": "203.0.113.7,1080,u,p,hk-01"},
    body_max=LARGE_BODY,
    answer=RecognisedText,
    example={"type": "socks5", "form": "rows"},
    scope="write",
)
async def recognise_nodes_text(body: TextToRecognise) -> Response:
    """The `type` is the one to import the text with. Its first 200 rows decide."""
    found = recognised("nodes", body.text)
    return reply(RecognisedText(type=found.type, form=found.form))


@router.post(
    "/recognise/vpn-lines",
    "Recognise the type of VPN lines to import",
    body={"text": "vpn.example.com,u,p,secret,l2tp_1,tokyo"},
    body_max=LARGE_BODY,
    answer=RecognisedText,
    example={"type": "l2tp", "form": "rows"},
    scope="write",
)
async def recognise_lines_text(body: TextToRecognise) -> Response:
    found = recognised("vpn-lines", body.text)
    return reply(RecognisedText(type=found.type, form=found.form))


def _previewed(outcome: ImportOutcome) -> Response:
    return reply(
        Preview(
            imported=outcome.imported,
            skipped=outcome.skipped,
            bad=outcome.error_count,
            errors=list(outcome.errors),
            bad_rows=[
                PreviewRow(line=row.line, errors=errors_of(row.faults)) for row in outcome.bad_rows
            ],
            notes=outcome.notes,
            fates=[
                PreviewFate(line=row.line, fate=row.fate, name=row.name, changed=row.changed)
                for row in outcome.fates
            ],
            removed=len(outcome.removed),
            removed_names=outcome.removed[:_NAMED_MAX],
        )
    )
