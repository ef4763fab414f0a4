"""``egressd history``."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from egressd.model.messages import LineStatus, RuleCount, Status
from egressd.model.times import utc_text

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
    now, ago = utc_text(device.now + 1), utc_text(device.now - 7200)
    assert shell.say("history", "top", "--from", ago, "--to", now) == "10.0.0.1\t70\t140\n"
    assert shell.json("history", "top", "--to", ago)["data"] == []
    found = shell.json("history", "traffic", "10.0.0.1", "--from", ago, "--to", now)
    assert (found["from"], found["to"], len(found["data"])) == (ago, now, 1)
    problem = shell.problem("history", "top", "--from", ago, "--hours", "2")
    assert "from and hours must not both be given" in problem
    assert "2026-11-20T22:58:40Z" in shell.problem("history", "top", "--from", "yesterday")
    (line,) = shell.say("history", "traffic", "10.0.0.1", "--step", "1h").splitlines()
    assert line.split("\t")[1:] == ["70", "140"]
    assert shell.json("history", "traffic", "DIRECT", "--by", "target")["step"] == "15m"


async def test_history_prints_delays_and_states(shell: Shell) -> None:
    device = shell.device
    config = '{"server": "198.51.100.1", "port": 1080}'
    shell.say("nodes", "add", "a/b", "socks5", "-", "--group", "g", stdin=config)
    shell.say("rules", "add", "10.0.0.1", "Group_g")
    shell.say("lines", "add", "l2tp_1", "a.example", "u", "--password", "p")
    (node,) = device.bench.nodes.list()
    key = f"node:{node.id}"
    group = f"group:{device.bench.ledger.state.numbers['Group_g']}"
    device.bench.netd.shown = Status(
        state="running",
        revision=0,
        lines={"l2tp_1": LineStatus(is_online=True)},
        delays={key: 25},
        elected={group: key},
    )
    for _ in range(2):
        await device.history.read()
        device.now += 60
    (line,) = shell.say("history", "delays", "a/b", "--step", "1d").splitlines()
    assert line.split("\t")[1:] == ["25", "120", "0"]
    assert shell.json("history", "delays", "a/b")["name"] == "a/b"
    before = utc_text(device.now - 86_400)
    assert shell.json("history", "delays", "a/b", "--to", before)["data"] == []
    for kind, name, more in (
        ("node", "a/b", []),
        ("line", "l2tp_1", []),
        ("line", "l2tp/l2tp_1", []),
        ("group", "g", ["a/b"]),
    ):
        (line,) = shell.say("history", "states", kind, name).splitlines()
        assert line.split("\t")[2:] == ["up", *more]
    assert shell.json("history", "states", "line", "l2tp_1")["up_s"] == 120
    since = utc_text(device.now - 60)
    assert shell.json("history", "states", "line", "l2tp_1", "--from", since)["up_s"] == 60
    assert "there is no line gone" in shell.problem("history", "states", "line", "gone")
