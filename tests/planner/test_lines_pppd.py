"""pppd's options file, read back as pppd reads it."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from egressd.planner.lines import pppd
from tests.support.daemon_files import CORPUS, dial, options, words


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
