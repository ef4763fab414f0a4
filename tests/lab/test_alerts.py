"""Alerts leave by their channel's target, by real nodes and WANs to a real server, or not."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from egressd_lab.authority import Authority
from egressd_lab.capture import Capture
from egressd_lab.device import API_PORT
from egressd_lab.lab import Lab
from egressd_lab.observed import Seen
from egressd_lab.packets import new_token
from egressd_lab.spec import LAN_ADDRESS, LabSpec
from tests.support.device import SERVER, add_nodes, eventually, send
from tests.support.lists import NAME as LISTS_NAME
from tests.support.lists import PORT as LISTS_PORT
from tests.support.lists import list_server
from tests.support.mail import MAIL, PORT, mail_server

pytestmark = pytest.mark.lab

NAME: Final = "alerts.example"
CHANNELS: Final = "/ops/alerts/channels"
SOON_S: Final = 60.0


@pytest.fixture(scope="module")
def lab(namespaces: None) -> Iterator[Lab]:
    with (
        Lab(LabSpec(nodes=("socks5", "http"), zone={NAME: (SERVER,)})) as lab,
        tempfile.TemporaryDirectory() as folder,
    ):
        # The sender does not see /run, where the lab has the certificate of its authority.
        Path(folder).chmod(0o755)
        trusted = Path(folder) / "ca.pem"
        trusted.write_bytes(lab.authority.file.read_bytes())
        lab.start_egressd(environment={"SSL_CERT_FILE": str(trusted)})
        add_nodes(lab)
        yield lab


def channel(lab: Lab, via: str, token: str, host: str = NAME, *, scheme: str = "json") -> int:
    return channel_to(lab, via, token, f"{scheme}://{host}/{token}")


def channel_to(lab: Lab, via: str, token: str, url: str) -> int:
    body = {"name": f"c-{token}", "url": url, "via": via}
    answer = lab.api.ask("POST", CHANNELS, body)
    assert answer.status == 201, answer.body
    return int(answer.body["id"])


def sending(lab: Lab, number: int) -> dict[str, Any]:
    answer = lab.api.ask("POST", f"{CHANNELS}/{number}/test", {})
    assert answer.status == 200, answer.body
    found: dict[str, Any] = answer.body
    return found


def posts(lab: Lab, token: str) -> list[Seen]:
    return [each for each in lab.internet.seen(text=token) if each.text.startswith("POST")]


def own_flows(lab: Lab, capture: Capture) -> list[Any]:
    """Return what the box itself has sent to the server, whatever it was."""
    own = {lab.wan(1).address, lab.wan(2).address}
    return [flow for flow in capture.flows(destination=SERVER) if flow.source in own]


def number_of(lab: Lab, name: str) -> int:
    found = lab.api.get("/nodes")["data"]
    return next(int(each["id"]) for each in found if each["name"] == name)


@contextmanager
def direct_down(lab: Lab) -> Iterator[None]:
    """Have DIRECT lead to nothing that answers for the block."""
    lab.wan(1).silence()
    try:
        yield
    finally:
        lab.wan(1).speak()


@contextmanager
def by_wan2(lab: Lab, name: str) -> Iterator[None]:
    """Have a node's server be reached by wan2."""
    number, draft = number_of(lab, name), lab.nodes[name].draft() | {"name": name}
    config = json.loads(draft["config_json"])
    moved = draft | {"config_json": json.dumps(config | {"interface-name": "wan2"})}
    lab.api.put(f"/nodes/{number}", moved)
    try:
        yield
    finally:
        lab.api.put(f"/nodes/{number}", draft)


def test_a_message_leaves_by_the_node_and_so_does_its_name(lab: Lab) -> None:
    token = new_token()
    number = channel(lab, "socks5", token)
    with lab.internet.capture() as capture:
        capture.prove()
        mark = lab.internet.mark()
        assert sending(lab, number) == {"is_sent": True, "reason": "", "reason_coded": None}
        (post,) = posts(lab, token)
        assert post.source == lab.nodes["socks5"].address
        assert own_flows(lab, capture) == []
        asked = lab.internet.seen(since=mark, text=NAME)
        assert {each.source for each in asked} == {lab.nodes["socks5"].address}
        # The positive control: what leaves by DIRECT is seen.
        assert sending(lab, channel(lab, "DIRECT", new_token()))["is_sent"]
        assert own_flows(lab, capture) != []


def test_a_node_carries_messages_while_direct_is_down(lab: Lab) -> None:
    token, other = new_token(), new_token()
    number, directly = channel(lab, "socks5", token), channel(lab, "DIRECT", other)
    with by_wan2(lab, "socks5"), direct_down(lab), lab.internet.capture() as capture:
        assert sending(lab, number)["is_sent"]
        (post,) = posts(lab, token)
        assert post.source == lab.nodes["socks5"].address
        refused = sending(lab, directly)
        assert not refused["is_sent"]
        assert refused["reason"]
        assert {flow.interface for flow in own_flows(lab, capture)} <= {lab.wan(1).far}
        assert lab.internet.seen(text=other) == []


def test_a_message_over_tls_reaches_a_server_that_is_trusted(lab: Lab) -> None:
    token, other = new_token(), new_token()
    assert sending(lab, channel(lab, "socks5", token, scheme="jsons"))["is_sent"]
    (post,) = posts(lab, token)
    assert (post.service, post.source) == ("https", lab.nodes["socks5"].address)
    # The same server under a name that its certificate does not have.
    lab.internet.put_name("other.example", SERVER)
    try:
        refused = sending(lab, channel(lab, "socks5", other, "other.example", scheme="jsons"))
    finally:
        lab.internet.put_name("other.example")
    assert (refused["is_sent"], refused["reason_coded"]["code"]) == (False, "tls-failure")
    assert "not valid for" in refused["reason"]
    assert lab.internet.seen(text=other) == []


def test_a_mail_leaves_by_the_node_while_direct_is_down(lab: Lab) -> None:
    token, other = new_token(), new_token()
    url = f"mailto://anna:passw0rd@{MAIL}:{PORT}/?to={token}@{MAIL}"
    number = channel_to(lab, "socks5", token, url)
    directly = channel_to(lab, "DIRECT", other, url.replace(token, other))
    with mail_server(lab) as mails:
        with by_wan2(lab, "socks5"), direct_down(lab), lab.internet.capture() as capture:
            capture.prove()
            assert sending(lab, number)["is_sent"]
            (mail,) = mails.taken("a test of alerts")
            assert mail["source"] == lab.nodes["socks5"].address
            assert mail["recipients"] == [f"<{token}@{MAIL}>"]
            assert own_flows(lab, capture) == []
            refused = sending(lab, directly)
            assert not refused["is_sent"]
            assert "passw0rd" not in refused["reason"]
            assert {flow.interface for flow in own_flows(lab, capture)} <= {lab.wan(1).far}
        # The positive control: by DIRECT, once it works again.
        eventually(lambda: sending(lab, directly)["is_sent"], SOON_S)
        assert [each["source"] for each in mails.taken(other)] == [lab.wan(1).address]


def test_a_mail_goes_to_no_server_that_is_not_trusted(lab: Lab, tmp_path: Path) -> None:
    token = new_token()
    url = f"mailtos://anna:passw0rd@{MAIL}:{PORT}/?to={token}@{MAIL}&mode=starttls"
    number = channel_to(lab, "socks5", token, url)
    with mail_server(lab, Authority(tmp_path)) as mails:
        refused = sending(lab, number)
        assert (refused["is_sent"], refused["reason_coded"]["code"]) == (False, "tls-failure")
        assert "certificate" in refused["reason"]
        assert mails.taken("") == []
    with mail_server(lab, lab.authority) as mails:
        assert sending(lab, number)["is_sent"]
        (mail,) = mails.taken(token)
        assert (mail["is_secure"], mail["source"]) == (True, lab.nodes["socks5"].address)
    # One that offers no TLS at all gets neither the password nor the message.
    with mail_server(lab) as mails:
        refused = sending(lab, number)
        assert not refused["is_sent"]
        assert refused["reason"]
        assert mails.taken("") == []


def test_a_dead_node_lets_nothing_out(lab: Lab) -> None:
    token = new_token()
    number = channel(lab, "http", token)
    node = lab.nodes["http"]
    with ExitStack() as mend, lab.internet.capture() as capture:
        mend.callback(node.program.start)
        node.program.stop(10)
        mark = lab.internet.mark()
        refused = sending(lab, number)
        assert not refused["is_sent"]
        assert refused["reason"]
        assert own_flows(lab, capture) == []
        assert lab.internet.seen(since=mark, text=NAME) == []
        mend.close()
        eventually(lambda: sending(lab, number)["is_sent"], SOON_S)
        assert {each.source for each in posts(lab, token)} == {node.address}


def test_two_channels_leave_by_their_own_ways_at_once(lab: Lab) -> None:
    ways = {
        "socks5": lab.nodes["socks5"].address,
        "Interface:wan2": lab.wan(2).address,
        "DIRECT": lab.wan(1).address,
    }
    tokens = {via: new_token() for via in ways}
    numbers = [channel(lab, via, token) for via, token in tokens.items()]
    with ThreadPoolExecutor(len(numbers)) as pool:
        ended = [*pool.map(lambda number: sending(lab, number)["is_sent"], numbers)]
    assert ended == [True, True, True]
    found = {via: {each.source for each in posts(lab, token)} for via, token in tokens.items()}
    assert found == {via: {address} for via, address in ways.items()}


@pytest.mark.parametrize("via", ["DIRECT", "Interface:wan2"])
def test_a_name_of_a_lan_host_or_of_the_box_leads_nowhere(lab: Lab, via: str) -> None:
    client = lab.client(1)
    with ExitStack() as mend:
        for address in (client.address, str(LAN_ADDRESS), lab.wan(1).address):
            name = "inner.example"
            mend.callback(lab.internet.put_name, name)
            lab.internet.put_name(name, address)
            with lab.router.capture("lan0") as capture:
                capture.prove()
                token = new_token()
                refused = sending(lab, channel(lab, via, token, f"{name}:{API_PORT}"))
                assert not refused["is_sent"]
                assert capture.flows(token) == []
                to_client = capture.flows(destination=client.address, protocol="tcp")
                assert [flow for flow in to_client if flow.port == API_PORT] == []


@pytest.mark.parametrize("via", ["DIRECT", "Interface:wan2"])
def test_a_name_of_a_private_network_leads_nowhere(lab: Lab, via: str) -> None:
    name = "private.example"
    with ExitStack() as mend:
        mend.callback(lab.internet.put_name, name)
        # The engine itself would connect: these addresses are beyond the WANs, as any other.
        for address in ("192.168.77.1", "100.64.7.7", "169.254.169.254"):
            lab.internet.put_name(name, address)
            with lab.internet.capture() as capture:
                capture.prove()
                refused = sending(lab, channel(lab, via, new_token(), name))
                assert not refused["is_sent"]
                assert refused["reason"]
                assert capture.flows(destination=address) == []


@pytest.mark.parametrize(
    "url",
    [
        "json://127.0.0.1/x",
        "json://localhost/x",
        f"json://{LAN_ADDRESS}/x",
        "json://2130706433/x",
        "json://[::1]/x",
        "syslog://",
        "dbus://",
        "windows://",
        "mailto://a:b@example.com?smtp=192.168.8.1",
        "json://example.com/x?template=/etc/passwd",
        "jsons://example.com/x?verify=no",
    ],
)
def test_urls_that_lead_inside_are_refused(lab: Lab, url: str) -> None:
    before = lab.api.ask("GET", CHANNELS).body
    answer = lab.api.ask("POST", CHANNELS, {"name": "x", "url": url, "via": "DIRECT"})
    assert answer.status == 400, answer.body
    assert answer.body["error"].startswith("url ")
    assert lab.api.ask("GET", CHANNELS).body == before


def test_a_failure_and_its_end_are_each_one_message(lab: Lab) -> None:
    token = new_token()
    number = channel(lab, "socks5", token)
    policy = {"on": ["node.failing"], "for_s": 2, "quiet": "", "channels": [number]}
    node = lab.nodes["http"]
    with ExitStack() as mend:
        send(lab, 1, "http")
        assert lab.api.ask("PUT", "/ops/alerts/policy", policy).status == 200
        mend.callback(node.program.start)
        node.program.stop(10)
        lab.client(1).http(f"http://{SERVER}/", timeout=5)
        eventually(lambda: len(sent(lab, number)) == 1, SOON_S)
        mend.close()
        eventually(lambda: len(sent(lab, number)) == 2, SOON_S)
    end, begin = sent(lab, number)
    assert [begin["outcome"], end["outcome"]] == ["sent", "sent"]
    assert "http fails: " in begin["title"]
    assert "http answers again" in end["title"]
    assert {each.source for each in posts(lab, token)} == {lab.nodes["socks5"].address}
    assert len(posts(lab, token)) == 2


def test_a_channel_that_never_answers_is_given_up_and_holds_up_no_other(lab: Lab) -> None:
    token, other = new_token(), new_token()
    with ExitStack() as mend:
        server = mend.enter_context(list_server(lab))
        server.answer(is_silent=True)
        silent = channel(lab, "DIRECT", token, f"{LISTS_NAME}:{LISTS_PORT}")
        living = channel(lab, "socks5", other)
        policy = {"on": ["node.failing"], "for_s": 2, "quiet": "", "channels": [silent, living]}
        send(lab, 1, "http")
        assert lab.api.ask("PUT", "/ops/alerts/policy", policy).status == 200
        node = lab.nodes["http"]
        mend.callback(node.program.start)
        node.program.stop(10)
        lab.client(1).http(f"http://{SERVER}/", timeout=5)
        eventually(lambda: len(sent(lab, living)) == 1, SOON_S)
        eventually(lambda: len(sent(lab, silent)) == 1, SOON_S)
        (taken,), (given_up,) = sent(lab, living), sent(lab, silent)
        assert (taken["outcome"], given_up["outcome"]) == ("sent", "failed")
        assert given_up["reason"]
        assert server.callers(f"/{token}") == {lab.wan(1).address}
        waiting = lab.api.ask("GET", f"{CHANNELS}/{silent}").body["waiting"]
        assert waiting == 1, "it is tried again"


def sent(lab: Lab, number: int) -> list[dict[str, Any]]:
    found = lab.api.ask("GET", "/ops/alerts/sent").body["data"]
    return [each for each in found if each["channel"] == number]


def test_the_command_line_makes_tests_and_removes_a_channel(lab: Lab) -> None:
    token = new_token()
    lab.device.run("alerts", "add", "cli", f"json://{NAME}/{token}", "--via", "socks5")
    listed = json.loads(lab.device.run("alerts", "list", "--json"))
    (found,) = [each for each in listed if each["name"] == "cli"]
    assert token not in json.dumps(listed)
    assert "sent" in lab.device.run("alerts", "test", str(found["id"]))
    assert len(posts(lab, token)) == 1
    assert "a test of alerts" in lab.device.run("alerts", "sent")
    lab.device.run("alerts", "remove", str(found["id"]))
    assert "cli" not in lab.device.run("alerts", "list")
