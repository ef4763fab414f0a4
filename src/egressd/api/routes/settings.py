"""``/ops``: the device's settings; stop, start and open."""

from __future__ import annotations

from typing import Any, Final

from starlette.responses import Response

from egressd.api.dependencies import ServicesDep
from egressd.api.endpoints import OPS_PREFIX
from egressd.api.lists import tags_of
from egressd.api.routers import Router
from egressd.api.wire.answers import Said, reply
from egressd.api.wire.objects import IfMatch
from egressd.api.wire.operations import Confirmation, Nothing, SettingsAnswer, SettingsReplace
from egressd.api.wire.outcomes import done
from egressd.model.nouns import Settings
from egressd.model.wording import say
from egressd.service.settings import settings_tag

_SETTINGS: Final[dict[str, Any]] = {
    "unmanaged": "REJECT",
    "delay_url": Settings().delay_url,
    "check_interval_s": 30,
    "group_strategy": "urltest",
    "sniff_domains": True,
}

router: Final = Router("Operations", OPS_PREFIX)


@router.get(
    "/settings",
    "Show the device's settings",
    answer=SettingsAnswer,
    example=_SETTINGS,
    scope="read",
)
async def show_settings(services: ServicesDep) -> Response:
    """The ETag is that of these fields: to stop or start the device makes no difference to it."""
    saved = services.settings.get()
    response = reply(
        SettingsAnswer(
            unmanaged=saved.unmanaged,
            delay_url=saved.delay_url,
            check_interval_s=saved.check_interval_s,
            group_strategy=saved.group_strategy,
            sniff_domains=saved.sniff_domains,
        )
    )
    response.headers["etag"] = settings_tag(saved)
    return response


@router.put(
    "/settings",
    "Replace the device's settings",
    body=_SETTINGS,
    answer=Said,
    example={"msg": "settings saved"},
    scope="write",
    is_conditional=True,
)
async def replace_settings(
    body: SettingsReplace, services: ServicesDep, if_match: IfMatch = ""
) -> Response:
    outcome = await services.settings.put(body.settings(), tags_of(if_match))
    response = reply(Said(msg=done(say("settings-saved"), outcome.notes)))
    response.headers["etag"] = settings_tag(outcome.value)
    return response


@router.post(
    "/stop",
    "Block every client",
    body={},
    answer=Said,
    example={"msg": "stopped: every client is blocked"},
    scope="admin",
)
async def stop_device(body: Nothing, services: ServicesDep) -> Response:
    """All that is configured stays, and can be changed meanwhile."""
    await services.settings.stop()
    return reply(Said(msg=say("now-stopped")))


@router.post(
    "/start",
    "Let the rules apply again",
    body={},
    answer=Said,
    example={"msg": "started: the rules apply"},
    scope="admin",
)
async def start_device(body: Nothing, services: ServicesDep) -> Response:
    await services.settings.start()
    return reply(Said(msg=say("now-started")))


@router.post(
    "/open",
    "Let every client out directly",
    body={"confirm": "open"},
    answer=Said,
    example={"msg": "opened: no rule applies, every client goes out directly"},
    scope="admin",
)
async def open_device(body: Confirmation, services: ServicesDep) -> Response:
    """Let all traffic leave by the device's own route, with its address. No rule applies until
    start or stop.
    """
    await services.settings.open()
    return reply(Said(msg=say("now-opened")))
