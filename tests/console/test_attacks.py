"""Ways to break in, each tried and refused: forgery, fixation, guessing, foreign names."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from egressd.console.accounts import STRANGERS_AT_ONCE
from egressd.console.sessions import IDLE_S
from egressd.console.throttle import ADDRESS, EVERYBODY, NETWORK
from tests.console.device import HOST, ORIGIN, OWN, PASSWORD, Device

if TYPE_CHECKING:
    from tests.console.device import Browser


FOREIGN_PAGES = [
    {},
    {"origin": ORIGIN},
    {"x-egressd-console": "1"},
    {**OWN, "x-egressd-console": "yes"},
    {**OWN, "origin": "https://evil.example"},
    {**OWN, "origin": "null"},
    {**OWN, "origin": "http://192.168.8.1:8788"},
    {**OWN, "origin": "https://192.168.8.1"},
    {**OWN, "origin": "https://192.168.8.1:8789"},
    {**OWN, "origin": f"{ORIGIN}.evil.example"},
    {**OWN, "sec-fetch-site": "cross-site"},
    {**OWN, "sec-fetch-site": "same-site"},
]
"""Headers of requests that a page of another site, or of another port, makes a browser send."""


@pytest.mark.parametrize("headers", FOREIGN_PAGES)
async def test_a_foreign_page_cannot_change_anything(
    device: Device, browser: Browser, headers: dict[str, str]
) -> None:
    """Cross-site request forgery, with the victim's cookie."""
    for method in ("POST", "PUT", "PATCH", "DELETE"):
        response = await browser.http.request(method, "/svc", headers=headers)
        assert response.status_code == 401, method
    for method, path in (
        ("POST", "/console/logout"),
        ("PUT", "/console/password"),
        ("DELETE", "/console/sessions"),
        ("POST", "/console/token/reset"),
        ("POST", "/console/token/reveal"),
        ("PUT", "/console/license"),
    ):
        response = await browser.http.request(method, path, headers=headers, json={})
        assert response.status_code == 403, path
    assert (await browser.send("POST", "/svc")).status_code == 200


@pytest.mark.parametrize("headers", FOREIGN_PAGES)
async def test_a_foreign_page_cannot_log_its_visitor_in(
    device: Device, headers: dict[str, str]
) -> None:
    """Login forgery: the victim would work in the attacker's session."""
    for path, body in (
        ("/console/login", {"password": PASSWORD}),
        ("/console/setup", {"code": device.code.renew(), "password": PASSWORD}),
    ):
        response = await device.browser().http.post(path, json=body, headers=headers)
        assert response.status_code == 403
        assert "set-cookie" not in response.headers


async def test_a_foreign_page_cannot_read_anything(device: Device, browser: Browser) -> None:
    for headers in (
        {"origin": "https://evil.example"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
    ):
        assert (await browser.http.get("/svc", headers=headers)).status_code == 401
        response = await browser.http.get("/console/access", headers=headers)
        assert response.status_code == 403
        assert "access-control-allow-origin" not in response.headers
    assert (await browser.get("/svc", sec_fetch_site="same-origin")).status_code == 200


async def test_a_cors_preflight_is_refused(device: Device) -> None:
    """A CORS preflight."""
    response = await device.browser().http.options(
        "/console/login",
        headers={
            "origin": "https://evil.example",
            "access-control-request-method": "POST",
            "access-control-request-headers": "x-egressd-console,content-type",
        },
    )
    assert response.status_code == 403
    assert not [name for name in response.headers if name.startswith("access-control")]


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:8788",
        "192.168.8.1.evil.example",
        "gateway.evil.example",
        "192.168.8.1@evil.example",
        "192.168.8.1:8788:8788",
        "0x7f.1",
        "",
    ],
)
async def test_a_foreign_host_name_is_refused(device: Device, browser: Browser, host: str) -> None:
    """DNS rebinding: the attacker's name leads here, so that the browser holds us for them."""
    headers = {"host": host, "origin": f"https://{host}", "x-egressd-console": "1"}
    cookie = f"__Host-egressd={browser.http.cookies['__Host-egressd']}"
    page = browser.http
    assert (await page.get("/", headers=headers)).status_code == 421
    answer = await page.post("/console/login", json={"password": PASSWORD}, headers=headers)
    assert answer.status_code == 421
    assert (await page.get("/console/session", headers=headers)).status_code == 421
    assert (await page.get("/svc", headers={**headers, "cookie": cookie})).status_code == 401


@pytest.mark.parametrize(
    "host",
    [
        "192.168.8.1",
        "10.1.2.3:8788",
        "[fd00::1]:8788",
        "gateway",
        "ROUTER.example:8788",
        "localhost",
    ],
)
async def test_own_addresses_and_names_are_accepted(device: Device, host: str) -> None:
    response = await device.browser().http.get("/console/session", headers={"host": host})
    assert response.status_code == 200


async def test_two_host_headers_are_refused(device: Device) -> None:
    response = await device.browser().http.get(
        "/console/session", headers=[("host", HOST), ("host", HOST)]
    )
    assert response.status_code == 421


async def test_a_session_identifier_cannot_be_fixed_by_an_attacker(device: Device) -> None:
    """Session fixation: an identifier that the attacker chose never becomes a session."""
    victim = device.browser()
    prepared = "attackers-choice-attackers-choice-attackers"
    cookie = {"cookie": f"__Host-egressd={prepared}"}
    answer = await victim.send("POST", "/console/login", {"password": PASSWORD}, cookie)
    assert answer.status_code == 200
    assert victim.http.cookies["__Host-egressd"] != prepared
    attacker = device.browser("192.168.8.66")
    attacker.http.cookies.set("__Host-egressd", prepared)
    assert (await attacker.get("/svc")).status_code == 401


async def test_logging_in_ends_the_browsers_earlier_session(
    device: Device, browser: Browser
) -> None:
    before = browser.http.cookies["__Host-egressd"]
    await browser.log_in()
    assert browser.http.cookies["__Host-egressd"] != before
    attacker = device.browser("192.168.8.66")
    attacker.http.cookies.set("__Host-egressd", before)
    assert (await attacker.get("/svc")).status_code == 401


async def test_a_second_cookie_of_the_same_name_makes_both_invalid(tmp_path_factory) -> None:  # type: ignore[no-untyped-def]
    """Cookie tossing, over plain HTTP, where names have no ``__Host-`` to protect them."""
    device = Device(tmp_path_factory.mktemp("plain"), insecure=True)
    await device.start()
    browser = device.browser(base="http://192.168.8.1:8787")
    body = {"code": device.code.code(), "password": PASSWORD}
    await browser.send("POST", "/console/setup", body)
    secret = browser.http.cookies["egressd"]
    for line in (f"egressd=theirs; egressd={secret}", f"egressd={secret}; egressd=theirs"):
        response = await device.browser(base="http://192.168.8.1:8787").get("/svc", cookie=line)
        assert response.status_code == 401
    await device.stop()


async def test_cookies_have_restrictive_attributes(device: Device) -> None:
    lines = (await device.browser().log_in()).headers.get_list("set-cookie")
    for line, name, age in zip(
        lines, ("__Host-egressd", "__Host-egressd-device"), (43_200, 31_536_000), strict=True
    ):
        parts = {part.strip().lower() for part in line.split(";")[1:]}
        assert line.startswith(f"{name}=")
        assert {"httponly", "secure", "samesite=strict", "path=/", f"max-age={age}"} == parts


async def test_passwords_cannot_be_guessed_quickly(device: Device) -> None:
    guesser = device.browser("192.168.8.66")
    statuses = [
        (await guesser.log_in(f"guess number {n}")).status_code for n in range(ADDRESS.free + 3)
    ]
    assert statuses == [403] * ADDRESS.free + [429] * 3
    # Nor is the right one looked at now.
    refused = await guesser.log_in()
    assert refused.status_code == 429
    assert refused.headers["retry-after"] == str(refused.json()["retry_after"])
    assert 0 < refused.json()["retry_after"] <= ADDRESS.first_s
    # From elsewhere the operator gets in, and the guesser a minute later gets one more.
    assert (await device.browser("192.168.8.5").log_in()).status_code == 200
    device.now += ADDRESS.first_s
    assert (await guesser.log_in("guess")).status_code == 403
    assert (await guesser.log_in("guess")).status_code == 429


async def guess_from(device: Device, network: str) -> None:
    """Guess from addresses of a network until it is not heard any more."""
    statuses = [
        (await device.browser(network.format(number)).log_in("a guess")).status_code
        for number in range(1, NETWORK.free + 2)
    ]
    assert set(statuses) == {403, 429}
    assert statuses[-1] == 429


async def test_a_host_with_many_addresses_gets_no_more_guesses(device: Device) -> None:
    # It had five from each: 38 a second from one host of a LAN.
    await guess_from(device, "192.168.8.{}")
    assert (await device.browser("192.168.9.5").log_in()).status_code == 200


async def test_a_known_browser_can_log_in_during_guesses_by_others(device: Device) -> None:
    known = device.browser("192.168.8.5")
    await known.log_in()
    await known.send("POST", "/console/logout")
    await guess_from(device, "192.168.8.{}")
    stranger = await device.browser("192.168.8.5").log_in()
    assert stranger.status_code == 429
    assert (await known.log_in()).status_code == 200
    # In another network too, and after its session has ended of itself.
    device.now += IDLE_S
    await guess_from(device, "192.168.8.{}")
    moved = device.browser("192.168.8.77")
    moved.http.cookies = known.http.cookies
    assert (await moved.log_in()).status_code == 200


async def test_a_session_can_change_the_password_during_guesses_by_others(
    device: Device, browser: Browser
) -> None:
    del browser.http.cookies["__Host-egressd-device"]
    await guess_from(device, "192.168.8.{}")
    body = {"current": PASSWORD, "password": "another password"}
    assert (await browser.send("PUT", "/console/password", body)).status_code == 200


async def test_guesses_from_all_networks_together_are_limited(device: Device) -> None:
    known = device.browser()
    await known.log_in()
    for number in range(EVERYBODY.free):
        assert (await device.browser(f"10.0.{number}.1").log_in("a guess")).status_code == 403
    refused = await device.browser("10.1.0.1").log_in()
    assert (refused.status_code, refused.headers["retry-after"]) == (429, "5")
    assert (await known.log_in()).status_code == 200
    local = device.browser("127.0.0.1", "http://127.0.0.1:8787")
    assert (await local.log_in()).status_code == 200


@pytest.mark.parametrize(
    "value", ["", "0123456789abcdef", "0123456789abcdef." + "0" * 64, "x.y", "zz." * 300]
)
async def test_a_forged_device_cookie_has_no_effect(device: Device, value: str) -> None:
    await guess_from(device, "192.168.8.{}")
    cookie = {"cookie": f"__Host-egressd-device={value}"}
    forger = device.browser("192.168.8.66")
    answer = await forger.send("POST", "/console/login", {"password": PASSWORD}, cookie)
    assert answer.status_code == 429


async def test_a_browser_known_by_an_earlier_password_is_unknown(
    device: Device, browser: Browser
) -> None:
    once_known = device.browser()
    await once_known.log_in()
    body = {"current": PASSWORD, "password": "another password"}
    assert (await browser.send("PUT", "/console/password", body)).status_code == 200
    await guess_from(device, "192.168.8.{}")
    assert (await once_known.log_in("another password")).status_code == 429
    await browser.send("POST", "/console/logout")
    assert (await browser.log_in("another password")).status_code == 200


async def test_refused_guesses_are_reported(device: Device) -> None:
    assert device.accounts.problems() == []
    await guess_from(device, "192.168.8.{}")
    assert device.accounts.problems() == [
        "the console's password is being guessed from 192.168.8.0/24"
    ]


async def test_concurrent_guesses_are_limited_like_others(device: Device) -> None:
    guesser = device.browser("192.168.8.66")
    answers = await asyncio.gather(*(guesser.log_in(f"guess number {n}") for n in range(30)))
    assert sum(answer.status_code == 403 for answer in answers) == ADDRESS.free


async def test_concurrent_guesses_from_many_networks_are_limited(device: Device) -> None:
    guessers = [device.browser(f"10.0.{n // 200}.{n % 200}") for n in range(60)]
    answers = await asyncio.gather(*(guesser.log_in("some guess") for guesser in guessers))
    looked_at = sum(answer.status_code == 403 for answer in answers)
    assert looked_at == STRANGERS_AT_ONCE
    assert all(answer.status_code in (403, 429) for answer in answers)
    assert (await device.browser().log_in()).status_code == 200


async def test_codes_cannot_be_guessed_quickly(new_device: Device) -> None:
    guesser = new_device.browser("192.168.8.66")
    statuses = []
    for number in range(ADDRESS.free + 2):
        body = {"code": f"AAAA-AAAA-{number:04}", "password": PASSWORD}
        statuses.append((await guesser.send("POST", "/console/setup", body)).status_code)
    assert statuses == [403] * ADDRESS.free + [429] * 2


async def test_a_right_password_resets_the_count(device: Device) -> None:
    browser = device.browser()
    for _ in range(3):
        for number in range(ADDRESS.free - 1):
            assert (await browser.log_in(f"guess number {number}")).status_code == 403
        assert (await browser.log_in()).status_code == 200


async def test_plain_http_redirects_to_https_and_accepts_no_password(device: Device) -> None:
    plain = device.browser(base="http://192.168.8.1:8787")
    response = await plain.get("/some/page")
    assert response.status_code == 308
    assert response.headers["location"] == "https://192.168.8.1:8788/some/page"
    assert (await plain.log_in()).status_code == 403
    assert (await plain.send("POST", "/console/setup")).status_code == 403


async def test_a_redirect_stays_on_this_host(device: Device) -> None:
    plain = device.browser(base="http://192.168.8.1:8787")
    for path in ("//evil.example/", "/\\evil.example", "/%0d%0aset-cookie:a=b"):
        response = await plain.get(path)
        assert response.headers["location"].startswith("https://192.168.8.1:8788/")
        assert "\r" not in response.headers["location"]
        assert "set-cookie" not in response.headers


async def test_plain_http_from_this_machine_is_accepted(device: Device) -> None:
    local = device.browser("127.0.0.1", "http://127.0.0.1:8787")
    answer = await local.log_in()
    assert answer.status_code == 200
    assert "secure" not in answer.headers["set-cookie"].lower()
    assert (await local.get("/svc")).status_code == 200
    # Its cookie is worth nothing by other ways.
    secret = local.http.cookies["egressd"]
    for base, name in (
        (ORIGIN, "__Host-egressd"),
        (ORIGIN, "egressd"),
        ("http://10.0.0.1", "egressd"),
    ):
        other = device.browser(base=base)
        assert (await other.get("/svc", cookie=f"{name}={secret}")).status_code == 401


async def test_a_session_does_not_make_a_wrong_token_valid(
    device: Device, browser: Browser
) -> None:
    assert (await browser.get("/svc", authorization="Bearer wrong")).status_code == 401


async def test_without_a_session_nothing_is_readable(device: Device) -> None:
    stranger = device.browser()
    for path in ("/console/sessions", "/console/access", "/console/unknown"):
        response = await stranger.get(path)
        assert (response.status_code, response.json()) == (401, {"error": "log in first"})
    for method, path in (
        ("POST", "/console/token/reveal"),
        ("POST", "/console/token/reset"),
        ("PUT", "/console/license"),
        ("PUT", "/console/password"),
        ("DELETE", "/console/sessions/1"),
    ):
        assert (await stranger.send(method, path)).status_code == 401
