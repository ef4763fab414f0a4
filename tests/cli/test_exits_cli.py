"""``egressd exits``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from egressd.model.delays import Delay
from egressd.model.wording import as_sentence
from egressd.service.exits import ExitPolicy

if TYPE_CHECKING:
    from tests.cli.shell import Shell

pytestmark = pytest.mark.slow

PAGES = {
    "node:1": Delay(delay=7, page=b"ip=203.0.113.7\nloc=JP\n"),
    "node:2": Delay(delay=7, page=b"ip=203.0.113.7\nloc=JP\n"),
    "DIRECT": Delay(delay=-1, error=as_sentence("timed out")),
}


async def test_exits_are_printed_with_time_sharers_and_reason(shell: Shell) -> None:
    for number, name in enumerate(("osaka", "tokyo")):
        config = f'{{"server": "198.51.100.{number + 1}", "port": 1080}}'
        shell.say("nodes", "add", name, "socks5", "-", stdin=config)
        shell.say("rules", "add", f"10.0.0.{number + 1}", name)
    shell.device.bench.netd.delay_of = lambda probe: PAGES[probe.name]
    await shell.device.exits.ask_due(lambda: 0.0)
    at = "2026-11-20T22:58:40Z"
    assert shell.say("exits").splitlines() == [
        "DIRECT\t\t\t\t\ttimed out",
        f"osaka\t203.0.113.7\tJP\t{at}\ttokyo\t",
        f"tokyo\t203.0.113.7\tJP\t{at}\tosaka\t",
    ]
    last = [line.split("\t")[-1] for line in shell.say("nodes", "list").splitlines()]
    assert last == ["203.0.113.7", "203.0.113.7"]
    found = shell.json("exits")
    assert [each["kind"] for each in found["data"]] == ["direct", "node", "node"]
    shell.device.exits.policy = ExitPolicy(url=found["url"], interval_s=0)
    assert "check_interval_s of [exits] is 0" in shell.run("exits").stderr
