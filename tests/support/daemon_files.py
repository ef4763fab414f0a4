"""Files of a line's daemons, read back as the daemons read them."""

from __future__ import annotations

from ipaddress import IPv4Address

import msgspec

from egressd.model.nouns import Line
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


def sections(text: str) -> dict[str, dict[str, str]]:
    """Parse by the rules of xl2tpd 1.3.18 (``parse_config`` and ``set_string``, file.c)."""
    found: dict[str, dict[str, str]] = {}
    section: dict[str, str] = {}
    for line in text.splitlines():
        assert len(line.encode()) <= 1023, "it would be split in two"
        if line.startswith("["):
            section = found.setdefault(line, {})
            assert not section, f"{line} twice"
            continue
        assert ";" not in line, "the rest would be a comment"
        key, _, value = (part.strip() for part in line.partition("="))
        assert key not in section, f"{key} twice"
        assert len(value.encode()) < 100, "it would be cut off"
        section[key] = value
    return found
