"""The form of a text is recognised by the text itself."""

from __future__ import annotations

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from egressd.formats.nodes import parse_nodes
from egressd.formats.recognition import recognise_lines, recognise_nodes
from egressd.formats.rows import Accepted
from tests.support.nodes.corpora import Case, cases

LINK = "trojan://a@203.0.113.1:443#one"
CLASH = """port: 7890
proxies:
  - {name: a, type: socks5, server: 203.0.113.1, port: 1080}
  - name: b
    type: trojan
    server: 203.0.113.2
    port: 443
    password: p
proxy-groups:
  - {name: g, type: select, proxies: [a, b]}
"""
SING_BOX = '{"outbounds": [{"type": "socks", "tag": "a", "server": "h.test", "server_port": 1}]}'
CLASH_JSON = '{"proxies": [{"name": "a", "type": "socks5", "server": "203.0.113.1", "port": 1}]}'
ENTRY = "- {name: a, type: socks5, server: 203.0.113.1, port: 1080}"
UUID = "5f2c1b8e-0d34-4a67-9b1f-000000345678"


@pytest.mark.parametrize(
    ("text", "kind", "form"),
    [
        (f"{LINK}\n{LINK}", "others", "links"),
        (base64.b64encode(f"{LINK}\n{LINK}".encode()).decode(), "others", "base64"),
        (CLASH, "others", "clash"),
        (CLASH_JSON, "others", "clash"),
        (SING_BOX, "others", "singbox"),
        (ENTRY, "others", "entries"),
        ("203.0.113.1:1080:user:word", "others", "list"),
        ("203.0.113.1,1080,user,word,one", "socks5", "rows"),
        ("# a list\n203.0.113.1,8388,aes-128-gcm,word,one", "ss", "rows"),
        (f"vless|{UUID}|203.0.113.1|443", "vlessvmess", "rows"),
        (f"203.0.113.1,1080\n{LINK}\n203.0.113.2,1080", "socks5", "rows"),
        ("", "others", ""),
        ("203.0.113.1,99999,user,word", "socks5", ""),
        ("vless||203.0.113.1|443", "vlessvmess", ""),
        ("hello", "others", ""),
        ("nothing://x", "others", ""),
    ],
)
def test_nodes_are_recognised(text: str, kind: str, form: str) -> None:
    found = recognise_nodes(text)
    assert (found.type, found.form) == (kind, form)


def readable(kind: str, text: str) -> int:
    return sum(isinstance(row, Accepted) for row in parse_nodes(kind, text))


@pytest.mark.parametrize("case", cases(), ids=str)
def test_the_recognised_type_reads_no_less_than_the_operators_choice(case: Case) -> None:
    found = recognise_nodes(case.text)
    assert readable(found.type, case.text) >= readable(case.import_type, case.text)
    assert found.form or not readable(case.import_type, case.text)


@given(st.text(alphabet='a1,.:|{}[]-\n"/# proxies=', max_size=80))
def test_any_text_has_a_form(text: str) -> None:
    found = recognise_nodes(text)
    assert (found.form == "") == (readable(found.type, text) == 0)
    assert recognise_lines(text) in ("l2tp", "pptp")


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("vpn.example.com,u,p,secret,l2tp_1,tokyo", "l2tp"),
        ("vpn.example.com,u,p,pptp_1,tokyo", "pptp"),
        (
            "h.test,u,p,pptp_1\nh.test,u,p,s,l2tp_1\nh.test,u,p,pptp_2",
            "pptp",
        ),
        ("vpn.example.com,u,p", "l2tp"),
        ("vpn.example.com,1701,u,p,secret,,comment", "l2tp"),
        ("", "l2tp"),
    ],
)
def test_lines_are_recognised(text: str, kind: str) -> None:
    assert recognise_lines(text) == kind
