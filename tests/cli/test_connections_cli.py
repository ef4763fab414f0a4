"""``egressd connections``."""

from __future__ import annotations

from socket import IPPROTO_TCP
from typing import TYPE_CHECKING

import pytest

from egressd.model.connections import TrackedConnection
from egressd.planner.registry import MARK_DIRECT

if TYPE_CHECKING:
    from tests.cli.shell import Shell

pytestmark = pytest.mark.slow

CLIENT = "10.0.0.5"


def flow(number: int, *, is_inbound: bool = False) -> TrackedConnection:
    return TrackedConnection(
        id=number,
        protocol=IPPROTO_TCP,
        state="open",
        mark=MARK_DIRECT,
        is_inbound=is_inbound,
        client_port=50_000,
        far="203.0.113.80",
        far_port=443,
        sent=None if is_inbound else 1,
        received=None if is_inbound else 2,
        age_s=3,
    )


async def test_connections_are_listed_and_closed(shell: Shell) -> None:
    shell.device.bench.netd.flows[CLIENT] = [flow(1), flow(2, is_inbound=True), flow(3), flow(4)]
    ran = shell.run("connections", CLIENT)
    assert ran.stdout.splitlines() == [
        "1\ttcp\t203.0.113.80:443\tDIRECT\t\topen\t1\t2\t3",
        "2\ttcp\tfrom 203.0.113.80:443\tDIRECT\t\topen\t\t\t3",
    ]
    assert "4 in all; these are the first 2" in ran.stderr
    assert shell.json("connections", CLIENT)["total"] == 4
    closed = shell.say("connections", CLIENT, "--close", "1", "--close", "3")
    assert closed == f"1 connection of {CLIENT} closed\n" * 2
    assert "has no connection 3" in shell.problem("connections", CLIENT, "--close", "3")
    assert shell.say("connections", CLIENT, "--close-all") == f"2 connections of {CLIENT} closed\n"
    assert "must be an IPv4 address" in shell.problem("connections", "tv")
