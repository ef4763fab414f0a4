"""pppd's options file, read back as pppd reads it."""

from __future__ import annotations

from ipaddress import IPv4Address

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from egressd.model.nouns import Line
from egressd.planner.lines import pppd
from egressd.planner.lines.dial import Dial

CORPUS = (
    "a b", "a\tb", "'", '"', "`reboot`", "\\", ";", "#", "$(reboot)", "%", "{", "}", "[", "]",
    "x#y", "\\n", "\\040", "-x", "../../etc/shadow", "x@/etc/shadow", "é", "密码", "\U0001f600",
    'x" pty "touch /tmp/owned', "x\npty reboot", "x\r\nconnect reboot", "\x00", "\x7f", "",
    "a" * 255, "\\" * 255, "\xff\xfe", "plugin /tmp/x.so",
)  # fmt: skip

TAKES_ONE = {
    "ifname", "unit", "user", "password", "logfile", "maxfail", "lcp-echo-interval",
    "lcp-restart", "lcp-max-terminate", "mtu", "mru", "pty",
}  # fmt: skip
TAKES_NONE = {
    "nodetach", "debug", "noauth", "noipdefault", "ipcp-accept-local", "ipcp-accept-remote",
    "usepeerdns", "noipv6", "nodefaultroute", "lcp-echo-adaptive", "refuse-eap", "novj",
    "nobsdcomp", "nodeflate", "nomp", "noccp", "require-mppe-128", "refuse-pap", "refuse-chap",
    "refuse-mschap",
}  # fmt: skip
COUNTED = {"debug"}
"""Options whose effect grows with each repetition."""

LINE = Line(
    id=1, type="l2tp", name="l2tp_1", server="vpn.example", port=1701, username="u", password="p"
)


def dial(**changes: object) -> Dial:
    line = msgspec.structs.replace(LINE, **changes)
    return Dial(line=line, server=IPv4Address("203.0.113.9"), local=IPv4Address("198.51.100.2"))


def words(text: str) -> list[bytes]:
    """Split as pppd 2.4.9 does (``getword``, pppd/options.c), by the rules of its manual page."""
    found: list[bytes] = []
    word: bytearray | None = None
    quoted = ""
    i = 0
    data = text.encode().decode("latin-1")
    while i < len(data):
        c = data[i]
        i += 1
        if c == "\\":
            word = bytearray() if word is None else word
            c = data[i]
            if c in "01234567":
                digits = data[i : i + 3]
                end = next((n for n, d in enumerate(digits) if d not in "01234567"), len(digits))
                word.append(int(digits[:end], 8) & 0xFF)
                i += end
            else:
                raise AssertionError(f"an escape that is never written: \\{c}")
        elif quoted:
            assert word is not None
            if c == quoted:
                quoted = ""
            else:
                word += c.encode("latin-1")
        elif c in "\"'":
            word = bytearray() if word is None else word
            quoted = c
        elif c.isspace():
            if word is not None:
                found.append(bytes(word))
            word = None
        elif c == "#":
            raise AssertionError("a comment")
        else:
            word = bytearray() if word is None else word
            word += c.encode("latin-1")
    assert not quoted
    assert word is None
    return found


def options(text: str) -> dict[str, list[bytes]]:
    """Return option -> its arguments. Fails on an option that egressd does not use."""
    left = words(text)
    found: dict[str, list[bytes]] = {}
    while left:
        name = left.pop(0).decode()
        assert name in TAKES_ONE | TAKES_NONE, f"unknown option {name}"
        assert name not in found or name in COUNTED, f"{name} twice"
        found[name] = [left.pop(0)] if name in TAKES_ONE else []
    return found


def test_an_l2tp_line_has_the_expected_options() -> None:
    found = options(pppd.l2tp_options(dial(password="p w")))
    assert found["ifname"] == [b"l2tp_1"]
    assert int(found["unit"][0]) > 9_999, "the lowest ones are for others"
    assert found["user"] == [b"u"]
    assert found["password"] == [b"p w"]
    assert found["mtu"] == [b"1400"]
    assert "pty" not in found
    assert "require-mppe-128" not in found


def test_a_pptp_line_is_encrypted_or_not_at_all() -> None:
    found = options(pppd.pptp_options(dial(type="pptp", name="pptp_1", port=1723)))
    assert {"require-mppe-128", "refuse-pap", "refuse-chap", "refuse-mschap"} <= found.keys()
    assert "noccp" not in found  # MPPE is agreed on by CCP
    assert found["pty"] == [
        b"exec /usr/sbin/pptp 203.0.113.9 --nolaunchpppd --nohostroute --loglevel 1 "
        b"--logstring pptp --localbind 198.51.100.2"
    ]


@pytest.mark.parametrize("render", [pppd.l2tp_options, pppd.pptp_options])
@given(username=st.text(max_size=300), password=st.text(max_size=300))
@example(username='"\n', password="'\\")
def test_written_options_are_read_back_unchanged(render, username, password) -> None:  # type: ignore[no-untyped-def]
    found = options(render(dial(username=username, password=password)))
    plain = options(render(dial()))
    assert found == plain | {
        "user": [username.encode()],
        "password": [password.encode()],
    }


@pytest.mark.parametrize("value", CORPUS)
@pytest.mark.parametrize("field", ["username", "password"])
def test_no_value_adds_an_option(field: str, value: str) -> None:
    for render in (pppd.l2tp_options, pppd.pptp_options):
        found = options(render(dial(**{field: value})))
        option = {"username": "user", "password": "password"}[field]
        assert found == options(render(dial())) | {option: [value.encode()]}


@pytest.mark.parametrize("value", CORPUS)
def test_a_word_has_only_letters_digits_and_octal_escapes(value: str) -> None:
    written = pppd.word(value)
    assert written.isascii()
    assert words(written + "\n") == [value.encode()]
    body = written[1:-1]
    assert all(c.isalnum() or c == "\\" for c in body)
