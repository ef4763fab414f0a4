"""``/ops``: the device's settings; stop, start and open."""

from __future__ import annotations

from typing import Any, Final

from fastapi import FastAPI
from starlette.responses import Response

from egressd.api.endpoints import OPS_PREFIX, Endpoints
from egressd.api.services import Services
from egressd.api.wire.answers import Said, done, reply
from egressd.api.wire.operations import Confirmation, Nothing, SettingsAnswer, SettingsReplace
from egressd.model.nouns import Settings
from egressd.model.wording import say

_SETTINGS: Final[dict[str, Any]] = {
    "unmanaged": "REJECT",
    "delay_url": Settings().delay_url,
    "check_interval_s": 30,
    "group_strategy": "urltest",
    "sniff_domains": True,
}


def add(app: FastAPI, services: Services) -> None:
    """Declare the endpoints."""
    endpoints = Endpoints(app, "Operations", OPS_PREFIX)
    settings = services.settings

    @endpoints.add(
        "GET", "/settings", "Show the device's settings", answer=SettingsAnswer, example=_SETTINGS
    )
    async def show_settings() -> Response:
        saved = settings.get()
        return reply(
            SettingsAnswer(
                unmanaged=saved.unmanaged,
                delay_url=saved.delay_url,
                check_interval_s=saved.check_interval_s,
                group_strategy=saved.group_strategy,
                sniff_domains=saved.sniff_domains,
            )
        )

    @endpoints.add(
        "PUT",
        "/settings",
        "Replace the device's settings",
        body=_SETTINGS,
        answer=Said,
        example={"msg": "settings saved"},
    )
    async def replace_settings(body: SettingsReplace) -> Response:
        outcome = await settings.put(body.settings())
        return reply(Said(msg=done(say("settings-saved"), outcome.notes)))

    @endpoints.add(
        "POST",
        "/stop",
        "Block every client",
        body={},
        answer=Said,
        example={"msg": "stopped: every client is blocked"},
    )
    async def stop_device(body: Nothing) -> Response:
        """All that is configured stays, and can be changed meanwhile."""
        await settings.stop()
        return reply(Said(msg=say("now-stopped")))

    @endpoints.add(
        "POST",
        "/start",
        "Let the rules apply again",
        body={},
        answer=Said,
        example={"msg": "started: the rules apply"},
    )
    async def start_device(body: Nothing) -> Response:
        await settings.start()
        return reply(Said(msg=say("now-started")))

    @endpoints.add(
        "POST",
        "/open",
        "Let every client out directly",
        body={"confirm": "open"},
        answer=Said,
        example={"msg": "opened: no rule applies, every client goes out directly"},
    )
    async def open_device(body: Confirmation) -> Response:
        """Let all traffic leave by the device's own route, with its address. No rule applies until
        start or stop.
        """
        await settings.open()
        return reply(Said(msg=say("now-opened")))
