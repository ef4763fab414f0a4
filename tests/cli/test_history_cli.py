"""``egressd history``."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from egressd.model.messages import RuleCount

if TYPE_CHECKING:
    from tests.cli.shell import Shell

pytestmark = pytest.mark.slow


async def test_history_prints_the_largest_and_one_over_time(shell: Shell) -> None:
    device = shell.device
    device.now = time.time()
    shell.say("rules", "add", "10.0.0.1", "DIRECT")
    for up in (0, 70):
        device.bench.netd.counted = {1: RuleCount(up, 1, 2 * up, 1)}
        await device.history.read()
    assert shell.say("history", "top") == "10.0.0.1\t70\t140\n"
    assert shell.say("history", "top", "--by", "target", "--hours", "700") == "DIRECT\t70\t140\n"
    assert shell.json("history", "top", "--limit", "1")["data"][0]["key"] == "10.0.0.1"
    (line,) = shell.say("history", "traffic", "10.0.0.1", "--step", "1h").splitlines()
    assert line.split("\t")[1:] == ["70", "140"]
    assert shell.json("history", "traffic", "DIRECT", "--by", "target")["step"] == "15m"
