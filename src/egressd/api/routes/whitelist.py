"""``/whitelist``."""

from __future__ import annotations

from typing import Final

from starlette.responses import Response

from egressd.api.dependencies import ServicesDep
from egressd.api.endpoints import OPS_PREFIX
from egressd.api.routers import Router
from egressd.api.wire.answers import Said, reply
from egressd.api.wire.outcomes import done
from egressd.api.wire.whitelist import WhitelistAnswer, WhitelistChange, WhitelistReplace
from egressd.model.wording import say

_EXAMPLE = {
    "domains": "example.com\nhttps://intranet.example.com:9443",
    "ips": "198.51.100.0/24",
    "node": "DIRECT",
}

router: Final = Router("Whitelist")
operations: Final = Router("Whitelist", OPS_PREFIX)


@router.get("/whitelist", "Show the whitelist", answer=WhitelistAnswer, example=_EXAMPLE)
async def show_whitelist(services: ServicesDep) -> Response:
    saved = services.whitelist.get()
    return reply(WhitelistAnswer(domains=saved.domains, ips=saved.ips, node=saved.node))


@router.put(
    "/whitelist",
    "Replace the whitelist",
    body=_EXAMPLE,
    answer=Said,
    example={"msg": "whitelist saved"},
)
async def replace_whitelist(body: WhitelistReplace, services: ServicesDep) -> Response:
    """Takes effect at once, and closes the connections of clients with a rule.

    A domain stands for itself and its subdomains. For another port than the usual ones,
    write `http://`, `https://` or `quic://`, the domain, a colon and the port.
    """
    outcome = await services.whitelist.put(body.domains, body.ips, body.node)
    return reply(Said(msg=done(say("whitelist-saved"), outcome.notes)))


@operations.patch(
    "/whitelist",
    "Add entries to the whitelist and take others off",
    body={"add": ["example.com"], "remove": ["198.51.100.0/24"]},
    answer=Said,
    example={"msg": "whitelist saved"},
    scope="write",
)
async def change_whitelist(body: WhitelistChange, services: ServicesDep) -> Response:
    """Add and remove entries. All others stay, even if another caller changes some now."""
    outcome = await services.whitelist.amend(body.add, body.remove)
    return reply(Said(msg=done(say("whitelist-saved"), outcome.notes)))
