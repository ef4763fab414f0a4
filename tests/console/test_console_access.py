"""The API settings, bodies that are none, and what is recorded."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.console.device import Browser, Device


async def test_the_token_is_masked_shown_and_reset(device: Device, browser: Browser) -> None:
    token = device.token.token()
    shown = (await browser.get("/console/access")).json()
    assert shown["token"] == f"{token[:4]}…"
    assert shown["plain_port"] == 8787
    assert (await browser.send("POST", "/console/token/reveal")).json() == {"token": token}
    answer = (await browser.send("POST", "/console/token/reset")).json()
    assert answer["token"] == device.token.token() != token
    recorded = " ".join(record.text for record in device.journal.records)
    assert token not in recorded
    assert answer["token"] not in recorded


async def test_a_license_is_installed_by_upload(device: Device, browser: Browser) -> None:
    headers = browser.own | {"content-type": "application/octet-stream"}

    async def upload(data: bytes, **more: str) -> tuple[int, str]:
        response = await browser.http.put(
            "/console/license", content=data, headers={**headers, **more}
        )
        return response.status_code, next(iter(response.json().values()))

    assert await upload(b"a license") == (200, "license 42 installed")
    assert await upload(b"no license") == (400, "the license is not installed: it is none")
    status, text = await upload(b"x" * 70_000)
    assert (status, text) == (400, "body must not be larger than 65536 bytes")
    status, text = await upload(b"a license", **{"content-type": "text/plain"})
    assert (status, text) == (400, "Content-Type must be application/octet-stream")


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b'{"password": 1}',
        b'{"password": "a", "more": 1}',
        b'{"password": "a", "password": "b"}',
        b'{"password": NaN}',
        b'{"password": ' + b"1" * 5_000 + b"}",
        b'{"password": "\\ud800"}',
        b"[" * 10_000,
        b'"\xff"',
        b"x" * 20_000,
    ],
)
async def test_an_invalid_body_is_400(device: Device, content: bytes) -> None:
    browser = device.browser()
    response = await browser.http.post(
        "/console/login",
        content=content,
        headers=browser.own | {"content-type": "application/json"},
    )
    assert response.status_code == 400
    assert response.json()["error"].startswith("body ")


async def test_a_form_is_refused(device: Device) -> None:
    browser = device.browser()
    response = await browser.http.post(
        "/console/login", data={"password": "x"}, headers=browser.own
    )
    assert response.json() == {"error": "Content-Type must be application/json"}


async def test_actions_of_a_session_are_recorded(device: Device, browser: Browser) -> None:
    (session,) = device.sessions.current()
    await browser.send("POST", "/console/token/reveal")
    await browser.send("POST", "/console/logout")
    assert [(r.who, r.source, r.what, r.text) for r in device.journal.records] == [
        (f"session {session.id}", "192.168.8.5", "POST /console/login", "logged in"),
        (f"session {session.id}", "192.168.8.5", "POST /console/token/reveal", "API token shown"),
        (f"session {session.id}", "192.168.8.5", "POST /console/logout", "logged out"),
    ]
    assert device.journal.subjects == {"console"}


async def test_an_unknown_endpoint_is_404(browser: Browser) -> None:
    response = await browser.get("/console/unknown")
    assert (response.status_code, response.json()) == (404, {"error": "there is no such endpoint"})
