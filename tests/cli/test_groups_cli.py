"""``egressd groups``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.cli.shell import Shell

pytestmark = pytest.mark.slow

SOCKS = '{"server": "198.51.100.7", "port": 1080}'


async def test_groups_are_set_listed_shown_and_deleted(shell: Shell) -> None:
    shell.say("nodes", "add", "tokyo", "socks5", "-", "--group", "asia", stdin=SOCKS)
    assert shell.say("groups", "list") == "asia\turltest\t1\t\t0\t0\n"
    assert shell.say(
        "groups", "set", "wans", "--strategy", "spread", "--member", "Interface:wan2",
        "--member", "Interface:wan1", "--member", "Group_asia", "--weight", "Interface:wan2=3",
        "--filter", "paris$", "--check-url", "http://example.com/", "--check-interval", "5",
        "--tolerance", "20", "--failback", "never", "--on-switch", "cut",
    ) == "group wans created\n"  # fmt: skip
    found = shell.json("groups", "show", "wans")
    assert found["members"] == ["Interface:wan2", "Interface:wan1", "Group_asia"]
    assert (found["strategy"], found["weights"]) == ("spread", {"Interface:wan2": 3})
    assert (found["filter"], found["check_url"]) == ("paris$", "http://example.com/")
    assert (found["check_interval_s"], found["tolerance_ms"]) == (5, 20)
    assert (found["failback"], found["on_switch"]) == ("never", "cut")
    shown = shell.say("groups", "show", "wans")
    assert "Interface:wan2=3" in shown
    assert "tokyo (not checked)" in shown
    assert shell.say("groups", "set", "wans", "--failback", "5", "--strategy", "device") == (
        "group wans saved\n"
    )
    found = shell.json("groups", "show", "wans")
    assert (found["failback"], found["strategy"], found["weights"]) == (5, "", {})
    shell.say("groups", "set", "wans", "--no-members")
    assert "must be sticky" in shell.problem("groups", "rotate", "wans")
    shell.say("groups", "set", "wans", "--strategy", "sticky", "--rotate-every", "3600")
    assert shell.json("groups", "show", "wans")["rotate_every_s"] == 3600
    assert "no client of a rule" in shell.problem("groups", "rotate", "wans", "10.0.0.5")
    assert shell.json("groups", "show", "wans")["members"] == []
    assert shell.say("groups", "delete", "wans") == "group wans deleted\n"
    assert "there is no group wans" in shell.problem("groups", "show", "wans")
    assert "--weight must be MEMBER=N" in shell.problem("groups", "set", "asia", "--weight", "x=")
    assert "must be a pattern of RE2" in shell.problem("groups", "set", "asia", "--filter", "(")
