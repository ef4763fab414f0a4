"""The lines that can be dialled, and the changes of a line that redial it."""

from __future__ import annotations

from ipaddress import IPv4Address
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from egressd.model.errors import Invalid
from egressd.model.nouns import Line
from egressd.planner.lines import ipsec
from egressd.planner.lines.daemon import daemon
from egressd.planner.lines.dial import Dial, check, dial_key
from egressd.planner.lines.ipsec import Manner
from egressd.planner.lines.proposals import ESP_OFFERS, IKE_OFFERS
from egressd.planner.registry import LINE_PORTS

L2TP = Line(
    id=1, type="l2tp", name="l2tp_1", server="vpn.example", port=1701, username="u", password="p"
)
PPTP = msgspec.structs.replace(L2TP, type="pptp", name="pptp_1", port=1723)


def changed(line: Line, **changes: Any) -> Line:
    return msgspec.structs.replace(line, **changes)


def problems(line: Line) -> tuple[str, ...]:
    with pytest.raises(Invalid) as caught:
        check(line)
    return caught.value.problems


@pytest.mark.parametrize("line", [L2TP, PPTP, changed(L2TP, secret="s", interface="wan1")])
def test_a_valid_line_has_no_problems(line: Line) -> None:
    check(line)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"type": "sstp"}, "type must be one of l2tp, pptp"),
        ({"name": "pptp_1"}, "name must be an interface name that begins with l2tp_"),
        ({"name": "l2tp_../../x"}, "name must be an interface name that begins with l2tp_"),
        ({"name": "l2tp_12345678901"}, "name must be an interface name that begins with l2tp_"),
        ({"interface": "wan 1"}, "interface must be auto or an interface name"),
        ({"server": "203.0.113.9 defaultroute"}, "server must be an IPv4 address or a host name"),
        ({"server": "$(reboot)"}, "server must be an IPv4 address or a host name"),
        ({"server": "2001:db8::1"}, "server must be an IPv4 address or a host name"),
        ({"server": "a\nb"}, "server must be an IPv4 address or a host name"),
        ({"port": 0}, "port must be a whole number from 1 to 65535"),
        ({"username": ""}, "username must not be empty"),
        ({"username": "a\nb"}, "username must not contain control characters"),
        ({"password": "a\x00b"}, "password must not contain control characters"),
        ({"password": "@/etc/shadow"}, "password must not begin with @/"),
        ({"secret": "@/etc/shadow"}, "secret must not begin with @/"),
        ({"secret": "a\rb"}, "secret must not contain control characters"),
        ({"password": "é" * 128}, "password must have at most 255 bytes"),
    ],
)
def test_an_invalid_field_is_named(changes: dict[str, Any], told: str) -> None:
    assert problems(changed(L2TP, **changes)) == (told,)


def test_every_fault_is_reported_at_once() -> None:
    assert len(problems(changed(L2TP, server="", port=0, username="", password="\n"))) == 4


def test_pptp_takes_only_port_1723() -> None:
    assert problems(changed(PPTP, port=1724)) == (
        "port must be 1723 for pptp: its client dials no other",
    )


@pytest.mark.parametrize("line", [changed(L2TP, password="\n"), changed(PPTP, server="-h")])
def test_nothing_is_rendered_for_an_invalid_line(line: Line) -> None:
    with pytest.raises(Invalid):
        daemon(_dial(line))


def _dial(line: Line, local_port: int = 0) -> Dial:
    return Dial(
        line=line,
        server=IPv4Address("203.0.113.9"),
        local=IPv4Address("198.51.100.2"),
        local_port=local_port,
    )


@pytest.mark.parametrize("line", [L2TP, PPTP])
def test_secrets_are_in_files_only(line: Line) -> None:
    found = daemon(_dial(changed(line, password="S3cret", secret="S3cret")))
    assert not any("S3cret" in word for word in found.argv)
    assert "S3cret" in found.files["options"]
    assert "S3cret" not in repr(found)
    assert "S3cret" not in repr(_dial(changed(line, password="S3cret", secret="S3cret")))


@pytest.mark.parametrize(
    "changes",
    [
        {"comment": "x"},
        {"dns_profile": "custom", "dns_servers": ("1.1.1.1",)},
        {"id": 9},
        {"is_enabled": False},
    ],
)
def test_edits_that_daemons_do_not_see_keep_the_line_up(changes: dict[str, Any]) -> None:
    assert dial_key(changed(L2TP, **changes)) == dial_key(L2TP)


@pytest.mark.parametrize(
    "changes",
    [
        {"name": "l2tp_2"},
        {"server": "other.example"},
        {"port": 1702},
        {"username": "v"},
        {"password": "q"},
        {"secret": "s"},
        {"interface": "wan1"},
    ],
)
def test_edits_that_daemons_see_redial_the_line(changes: dict[str, Any]) -> None:
    assert dial_key(changed(L2TP, **changes)) != dial_key(L2TP)


@given(st.text(), st.text(), st.text(), st.text())
def test_dial_keys_differ_if_user_name_or_password_differ(a: str, b: str, c: str, d: str) -> None:
    one, two = changed(L2TP, username=a, password=b), changed(L2TP, username=c, password=d)
    assert (dial_key(one) == dial_key(two)) == ((a, b) == (c, d))


# --- IPsec. ---------------------------------------------------------------------------------


def test_an_association_covers_one_port_towards_one_server() -> None:
    dial = _dial(changed(L2TP, secret="s", port=1702), LINE_PORTS[7])
    other = _dial(changed(L2TP, secret="s"), LINE_PORTS[8])
    connection = ipsec.connection([dial, other], 3, Manner())
    assert list(connection) == ["group-3"]
    body = connection["group-3"]
    names = [f"line-{LINE_PORTS[7]}", f"line-{LINE_PORTS[8]}"]
    assert list(body["children"]) == names, "charon looks in there when the server renews one"
    child = body["children"][names[0]]
    assert child["mode"] == "transport"
    assert child["local_ts"] == [f"dynamic[udp/{LINE_PORTS[7]}]"]
    assert child["rekey_time"] == "2400s", "before the server does, mostly after an hour"
    assert child["remote_ts"] == ["dynamic[udp/1702]"]
    assert "updown" not in child
    assert body["local_addrs"] == ["198.51.100.2"]
    assert body["remote_addrs"] == ["203.0.113.9"]


def test_only_lines_of_one_group_share_an_ike_association() -> None:
    """charon shares one among IKEv1 connections that are equal but for names and children."""
    line = changed(L2TP, secret="s")

    def body(port: int, group: int) -> dict[str, Any]:
        _, made = ipsec.connection([_dial(line, port)], group, Manner()).popitem()
        return {key: value for key, value in made.items() if key != "children"}

    assert body(LINE_PORTS[0], 5) == body(LINE_PORTS[9], 5)
    groups = range(len(LINE_PORTS))
    assert len({body(LINE_PORTS[0], group)["rekey_time"] for group in groups}) == len(groups)


def test_an_association_is_asked_for_in_the_manner_that_is_due() -> None:
    dial = _dial(changed(L2TP, secret="s"), LINE_PORTS[0])
    for manner, encap in ((Manner(), "no"), (Manner(ike=2, esp=3, is_in_udp=True), "yes")):
        body = ipsec.connection([dial], 0, manner)["group-0"]
        assert body["proposals"] == list(IKE_OFFERS[manner.ike])
        assert body["encap"] == encap
        (child,) = body["children"].values()
        assert child["esp_proposals"] == list(ESP_OFFERS[manner.esp])


@given(st.text())
def test_a_secret_is_sent_as_bytes(secret: str) -> None:
    message = ipsec.shared_secret(IPv4Address("203.0.113.9"), secret)
    assert message["data"] == secret.encode()
    assert message["owners"] == ["203.0.113.9"]


def test_a_port_outside_the_guarded_range_has_no_association() -> None:
    with pytest.raises(ValueError, match="1701 is not guarded"):
        ipsec.connection([_dial(changed(L2TP, secret="s"), 1701)], 0, Manner())


def test_charon_runs_nothing_and_routes_nothing() -> None:
    assert "updown" not in ipsec.CONFIGURATION
    assert "install_routes = no" in ipsec.CONFIGURATION
