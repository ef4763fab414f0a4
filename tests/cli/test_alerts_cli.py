"""``egressd alerts``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from egressd.model.wording import as_sentence

if TYPE_CHECKING:
    from tests.cli.shell import Shell

pytestmark = pytest.mark.slow

URL = "ntfys://ntfy.example.org/secret-topic"


async def test_channels_are_added_tested_changed_and_removed(shell: Shell) -> None:
    assert (
        shell.say("alerts", "add", "phone", URL, "--via", "DIRECT")
        == "alert channel phone created\n"
    )
    assert shell.say("alerts", "list") == "1\tphone\tntfys\tDIRECT\tyes\t0\n"
    assert shell.say("alerts", "set", "1", "--disable", "--name", "mobile").endswith("saved\n")
    assert "mobile" in shell.say("alerts", "list")
    assert shell.say("alerts", "test", "1") == "sent\n"
    shell.device.bench.netd.alert_problem = lambda _: as_sentence("refused")
    assert "refused" in shell.problem("alerts", "test", "1")
    assert "refused" in shell.say("alerts", "sent")
    assert "must begin with a service" in shell.problem(
        "alerts", "add", "x", "syslog://x", "--via", "DIRECT"
    )
    assert "secret" not in shell.say("alerts", "list", "--json")
    assert shell.say("alerts", "remove", "1") == "alert channel mobile deleted\n"


async def test_the_policy_is_printed_and_changed_in_parts(shell: Shell) -> None:
    shell.say("alerts", "policy", "--on", "wan.down, line.down", "--quiet", "23:00-07:00")
    found = shell.json("alerts", "policy")
    assert (found["on"], found["for_s"]) == (["wan.down", "line.down"], 60)
    shell.say("alerts", "policy", "--for", "5", "--quiet", "")
    found = shell.json("alerts", "policy")
    assert (found["on"], found["for_s"], found["quiet"]) == (["wan.down", "line.down"], 5, "")
    assert "for_s" in shell.say("alerts", "policy")
    assert "must be one of" in shell.problem("alerts", "policy", "--on", "quota.high")
