"""Setup, login, logout, expiry, the list of sessions."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from egressd.console.passwords import Passwords
from egressd.console.sessions import ABSOLUTE_S, IDLE_S, SESSIONS_MAX
from tests.console.device import PASSWORD, Device
from tests.support.disks import fill, small_disk

if TYPE_CHECKING:
    from tests.console.device import Browser
    from tests.support.needs import Need


def said(text: str, code: str, **values: int) -> dict[str, object]:
    """Return the answer that has this sentence."""
    return {"msg": text, "msg_coded": {"code": code, "values": values, "text": text}}


async def test_a_new_device_needs_a_setup(new_device: Device) -> None:
    browser = new_device.browser()
    assert await browser.state() == "setup"
    assert not (await browser.get("/console/session")).json()["has_password"]
    code = new_device.code.code()
    assert code is not None
    typed = code.lower().replace("-", " ")
    answer = await browser.send("POST", "/console/setup", {"code": typed, "password": PASSWORD})
    assert answer.json() == said("the console's password is chosen", "password-chosen")
    shown = (await browser.get("/console/session")).json()
    assert shown["state"] == "open"
    assert shown["session"]["is_current"]
    assert shown["session"]["source"] == "192.168.8.5"
    assert await new_device.browser().state() == "login"


async def test_a_setup_code_is_valid_once(new_device: Device) -> None:
    body = {"code": new_device.code.code(), "password": PASSWORD}
    answers = await asyncio.gather(
        *(new_device.browser(f"10.0.0.{n}").send("POST", "/console/setup", body) for n in range(5))
    )
    assert sorted(a.status_code for a in answers) == [200, 403, 403, 403, 403]
    assert new_device.code.code() is None


async def test_a_new_code_replaces_a_forgotten_password(device: Device, browser: Browser) -> None:
    code = device.code.renew()
    assert await device.browser().state() == "setup"
    # Who knows the password still gets in meanwhile.
    assert (await device.browser().get("/console/session")).json()["has_password"]
    body = {"code": code, "password": "another password"}
    assert (await device.browser().send("POST", "/console/setup", body)).status_code == 200
    assert await browser.state() == "login"
    assert (await device.browser().log_in()).status_code == 403
    assert (await device.browser().log_in("another password")).status_code == 200


async def test_a_full_disk_does_not_prevent_a_login(tmp_path: Path, need: Need) -> None:
    need("root, who may mount a small file system", os.geteuid() == 0)
    with small_disk(tmp_path / "disk") as disk:
        device = Device(disk)
        await device.start()
        browser = device.browser()
        body = {"code": device.code.code(), "password": PASSWORD}
        filler = fill(disk)
        answer = await browser.send("POST", "/console/setup", body)
        assert (answer.status_code, await browser.state()) == (500, "setup")
        assert "full" in answer.json()["error"]
        filler.unlink()
        assert (await browser.send("POST", "/console/setup", body)).status_code == 200
        fill(disk)
        for _ in range(2):  # the second time in the first one's place
            assert (await browser.log_in()).status_code == 200
        assert await browser.state() == "open"
        await device.stop()


@pytest.mark.parametrize("password", ["short", "x" * 1001, "with\na line break"])
async def test_an_invalid_password_is_refused(new_device: Device, password: str) -> None:
    body = {"code": new_device.code.code(), "password": password}
    answer = await new_device.browser().send("POST", "/console/setup", body)
    assert answer.status_code == 400
    assert answer.json()["error"].startswith("password must have 10 to 1000 characters")
    assert new_device.code.code() == body["code"]


async def test_logging_out_ends_the_session(device: Device, browser: Browser) -> None:
    secret = browser.http.cookies["__Host-egressd"]
    assert (await browser.send("POST", "/console/logout")).json() == said(
        "logged out", "logged-out"
    )
    assert "__Host-egressd" not in browser.http.cookies
    assert (await browser.get("/svc")).status_code == 401
    browser.http.cookies.set("__Host-egressd", secret)
    assert (await browser.get("/svc")).status_code == 401


async def test_an_unused_session_expires(device: Device, browser: Browser) -> None:
    device.now += IDLE_S - 1
    assert (await browser.get("/svc")).status_code == 200
    device.now += IDLE_S - 1
    assert (await browser.get("/svc")).status_code == 200
    device.now += IDLE_S
    assert (await browser.get("/svc")).status_code == 401
    await device.sessions.close()
    assert await device.store.sessions() == []


async def test_a_used_session_expires_at_its_absolute_limit(
    device: Device, browser: Browser
) -> None:
    end = device.now + ABSOLUTE_S
    while device.now < end - IDLE_S / 2:
        device.now += IDLE_S / 2
        assert (await browser.get("/svc")).status_code == 200
    device.now = end
    assert (await browser.get("/svc")).status_code == 401


@pytest.mark.parametrize("jump", [-56 * 365 * 86_400, 10 * 365 * 86_400])
async def test_a_clock_jump_extends_no_session(
    device: Device, browser: Browser, jump: float
) -> None:
    device.now += jump
    assert (await browser.get("/svc")).status_code == 401


async def test_sessions_survive_a_restart_and_expire_while_it_lasts(
    device: Device, browser: Browser
) -> None:
    secret = browser.http.cookies["__Host-egressd"]
    await device.stop()
    for later, status in ((100.0, 200), (IDLE_S * 2.0, 401)):
        again = Device(device.folder)
        again.now = device.now + later
        await again.start()
        returning = again.browser()
        returning.http.cookies.set("__Host-egressd", secret)
        assert (await returning.get("/svc")).status_code == status
        await again.stop()


async def test_the_database_holds_no_secret(device: Device, browser: Browser) -> None:
    secret = browser.http.cookies["__Host-egressd"]
    await device.stop()
    stored = b"".join(path.read_bytes() for path in device.folder.glob("state.db*"))
    assert secret.encode() not in stored
    assert PASSWORD.encode() not in stored
    assert b"$argon2id$" in stored


async def test_sessions_are_listed_and_ended(device: Device, browser: Browser) -> None:
    device.now += 10
    other = device.browser("192.168.8.6")
    await other.log_in()
    listed = (await browser.get("/console/sessions")).json()["data"]
    assert [(s["source"], s["is_current"]) for s in listed] == [
        ("192.168.8.6", False),
        ("192.168.8.5", True),
    ]
    path = f"/console/sessions/{listed[0]['id']}"
    assert (await browser.send("DELETE", path)).status_code == 200
    assert (await browser.send("DELETE", path)).status_code == 404
    assert (await other.get("/svc")).status_code == 401
    await device.browser("192.168.8.7").log_in()
    answer = (await browser.send("DELETE", "/console/sessions")).json()
    assert answer == said("1 other session ended", "sessions-ended", n=1) | {"deleted": 1}
    for number in range(3):
        await device.browser(f"192.168.8.{20 + number}").log_in()
    assert (await browser.send("DELETE", "/console/sessions")).json()["deleted"] == 3
    assert (await browser.get("/svc")).status_code == 200


async def test_a_new_password_ends_all_sessions_but_its_own(
    device: Device, browser: Browser
) -> None:
    other = device.browser("192.168.8.6")
    await other.log_in()
    body = {"current": PASSWORD, "password": "another password"}
    before = browser.http.cookies["__Host-egressd"]
    assert (await browser.send("PUT", "/console/password", body)).status_code == 200
    assert browser.http.cookies["__Host-egressd"] != before
    assert await browser.state() == "open"
    assert await other.state() == "login"
    assert (await browser.send("PUT", "/console/password", body)).status_code == 403


async def test_a_password_of_another_member_ends_all_sessions(
    device: Device, browser: Browser
) -> None:
    """Also the stored ones, and the setup code."""
    hash_ = await Passwords().hash("another password")
    device.code.renew()
    await device.accounts.adopt_password(hash_)
    assert await device.accounts.password_hash() == hash_
    assert device.code.code() is None
    assert await browser.state() == "login"
    assert await device.store.sessions() == []
    for password, status in ((PASSWORD, 403), ("another password", 200)):
        answer = await browser.send("POST", "/console/login", {"password": password})
        assert answer.status_code == status


async def test_concurrent_logins_with_a_replaced_password_end(
    device: Device, browser: Browser
) -> None:
    body = {"current": PASSWORD, "password": "another password"}
    others = [device.browser(f"192.168.8.{n}") for n in range(20, 28)]
    await asyncio.gather(
        *(other.log_in() for other in others[:4]),
        browser.send("PUT", "/console/password", body),
        *(other.log_in() for other in others[4:]),
    )
    assert {await other.state() for other in others} == {"login"}
    assert await browser.state() == "open"


async def test_the_number_of_sessions_is_limited(device: Device) -> None:
    first = device.browser()
    await first.log_in()
    for _ in range(SESSIONS_MAX):
        device.now += 1
        _, session = device.sessions.prepare("c", "192.0.2.1", "")
        await device.sessions.begin(session)
    assert len(device.sessions.current()) == SESSIONS_MAX
    assert (await first.get("/svc")).status_code == 401


async def test_a_login_after_the_clock_was_set_back_is_kept(device: Device) -> None:
    for _ in range(SESSIONS_MAX):
        _, session = device.sessions.prepare("c", "192.0.2.1", "")
        await device.sessions.begin(session)
    device.now -= 3600
    for _ in range(2):
        browser = device.browser()
        await browser.log_in()
        assert (await browser.get("/svc")).status_code == 200


async def test_a_stream_ends_with_its_session(device: Device, browser: Browser) -> None:
    (session,) = device.sessions.current()
    headers = [(b"host", b"192.168.8.1:8788")]
    cookie = f"__Host-egressd={browser.http.cookies['__Host-egressd']}".encode()
    scope = {
        "type": "http",
        "method": "GET",
        "scheme": "https",
        "path": "/ops/events",
        "headers": [*headers, (b"cookie", cookie)],
    }
    caller = device.authenticator.caller(scope)
    assert caller is not None
    assert caller.name == f"session {session.id}"
    device.now += IDLE_S - 1
    assert caller.is_live()
    device.now += IDLE_S - 1
    assert caller.is_live()
    await device.sessions.end([session])
    assert not caller.is_live()
