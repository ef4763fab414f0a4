"""The console over the network: a browser's requests from a LAN client, and their effects."""

from __future__ import annotations

import json

import pytest

from egressd_lab.lab import Lab
from tests.support.browser import Browser
from tests.support.device import SERVER, eventually, send

pytestmark = [pytest.mark.lab, pytest.mark.usefixtures("nodes")]

WEB = f"http://{SERVER}/"
PASSWORD = "correct horse battery"


@pytest.fixture
def browser(lab: Lab) -> Browser:
    """Log in from client 2, with the code that the device shows to root."""
    browser = Browser(lab, 2)
    code = lab.device.run("console", "code").strip()
    status, answer = browser.send("POST", "/console/setup", {"code": code, "password": PASSWORD})
    assert status == 200, answer
    return browser


def way_out(lab: Lab, client: int) -> str:
    """Return a client's address as the internet sees it, or an empty text when it is refused."""
    return lab.client(client).http(WEB).seen


def test_a_rule_saved_in_the_console_moves_a_client(lab: Lab, browser: Browser) -> None:
    address = lab.client(1).address
    rule = {"ip": address, "target_node": "socks5"}
    assert browser.send("POST", "/svc/api/v1/rules", rule)[0] == 200
    assert way_out(lab, 1) == lab.nodes["socks5"].address
    # A request without the page's own header is not accepted as the console's.
    assert browser.send("POST", "/svc/api/v1/rules", rule, X_Egressd_Console="0")[0] == 401
    stranger = Browser(lab, 3)
    assert stranger.send("GET", "/svc/api/v1/rules") == (401, {"error": "API Token invalid"})
    _, recorded = browser.send("GET", "/ops/changes?limit=1")
    assert recorded["data"][0]["who"].startswith("session ")
    assert recorded["data"][0]["source"] == lab.client(2).address


def test_explanations_match_the_actual_egress(lab: Lab, browser: Browser) -> None:
    send(lab, 1, "ss")
    send(lab, 2, "Interface:wan2")
    for client, exit_ip in ((1, lab.nodes["ss"].address), (2, lab.wan(2).address)):
        asked = {"client": lab.client(client).address, "destination": SERVER, "port": 80}
        query = "&".join(f"{name}={value}" for name, value in asked.items())
        status, told = browser.send("GET", f"/ops/explain?{query}")
        assert (status, told["is_blocked"]) == (200, False)
        status, proof = browser.send("POST", "/ops/probe", {**asked, "url": WEB})
        assert (status, proof["error"], proof["in_force"]) == (200, "", True)
        assert proof["exit_ip"] == way_out(lab, client) == exit_ip
    said = lab.device.run(
        "explain", lab.client(1).address, SERVER, "--port", "80", "--probe-url", WEB
    )
    assert f"saw {lab.nodes['ss'].address}" in said
    told = json.loads(
        lab.device.run("explain", lab.client(3).address, SERVER, "--json", check=False)
    )
    assert (told["is_blocked"], way_out(lab, 3)) == (True, "")


def test_the_service_finds_what_the_command_finds(lab: Lab, browser: Browser) -> None:
    """The command is root's. netd answers for what the api's user does not see."""
    status, told = browser.send("GET", "/ops/check")
    assert status == 200
    assert "DHCP" in {each["subject"] for each in told["data"]}, "no DHCP server runs in a lab"
    texts = [
        {name: value for name, value in each.items() if not name.endswith("_coded")}
        for each in told["data"]
    ]
    assert texts == json.loads(lab.device.run("check", "--json", check=False))


def test_stop_blocks_and_open_needs_a_confirmation(lab: Lab, browser: Browser) -> None:
    send(lab, 1, "socks5")
    try:
        assert browser.send("POST", "/ops/stop")[0] == 200
        assert [way_out(lab, client) for client in (1, 3)] == ["", ""]
        assert browser.send("GET", "/ops/overview")[1]["status"] == "stopped"
        assert browser.send("POST", "/ops/open")[0] == 400
        assert way_out(lab, 1) == ""
        assert browser.send("POST", "/ops/open", {"confirm": "open"})[0] == 200
        assert {way_out(lab, client) for client in (1, 3)} == {lab.wan(1).address}
        assert browser.send("GET", "/ops/overview")[1]["is_open"]
    finally:
        assert browser.send("POST", "/ops/start")[0] == 200
    assert way_out(lab, 1) == lab.nodes["socks5"].address
    assert way_out(lab, 3) == ""


def test_traffic_is_counted_by_interface(lab: Lab, browser: Browser) -> None:
    send(lab, 1, "Interface:wan2")

    def sent() -> dict[str, int]:
        seen = browser.send("GET", "/ops/overview")[1]
        return {interface["name"]: interface["received"] for interface in seen["interfaces"]}

    before = sent()
    lab.client(1).http(f"http://{SERVER}/bytes/1000000")
    after = sent()
    assert after["wan2"] - before["wan2"] > 1_000_000
    assert after["wan1"] - before["wan1"] < 100_000


def test_sessions_survive_a_restart_of_the_service(lab: Lab, browser: Browser) -> None:
    assert browser.send("GET", "/ops/settings")[0] == 200
    lab.device.stop()
    lab.device.start()
    eventually(lambda: browser.send("GET", "/ops/settings")[0] == 200)
    assert browser.send("POST", "/console/logout")[0] == 200
    lab.device.stop()
    lab.device.start()
    assert browser.send("GET", "/ops/settings")[0] == 401


def test_wrong_passwords_from_one_client_do_not_lock_out_others(lab: Lab, browser: Browser) -> None:
    guesser = Browser(lab, 3)
    statuses = [
        guesser.send("POST", "/console/login", {"password": f"guess number {n}"})[0]
        for n in range(8)
    ]
    assert statuses == [403] * 5 + [429] * 3
    assert Browser(lab, 1).send("POST", "/console/login", {"password": PASSWORD})[0] == 200
