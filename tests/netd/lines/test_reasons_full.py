"""Reasons from whole logs of real daemons.

`tests.vm.collect` has written the logs: each is of a line that did not come up in the machine, with
the state and reason that netd gave.
"""

from __future__ import annotations

import json
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any, Final

import pytest

from egressd.model.nouns import Line
from egressd.netd.lines import diagnosis
from egressd.netd.lines.failure import Failure
from egressd.planner.lines.dial import Dial
from tests.netd.lines.documented import table

LOGS: Final = Path(__file__).parent / "logs"
RELEASES: Final = ("bookworm", "trixie")
ENTRIES: Final = {name: json.loads((LOGS / f"{name}.json").read_text()) for name in RELEASES}
ALL: Final = [entry for name in RELEASES for entry in ENTRIES[name]]


def failures(entry: dict[str, Any]) -> list[Failure]:
    """Return the failures that netd may see in these logs: at their end, or when time is up."""
    server = IPv4Address(entry["server"])
    line = Line(
        id=1,
        type=entry["kind"],
        name="x",
        server=entry["server"],
        port=1701 if entry["kind"] == "l2tp" else 1723,
        username="office",
        password="x",
    )
    dial = Dial(line=line, server=server, local=IPv4Address("10.1.0.2"))
    ppp, daemon = ("".join(f"{each}\n" for each in entry[log]) for log in ("ppp", "daemon"))
    ended = diagnosis.verdict(dial, was_online=False, ppp_log=ppp, daemon_log=daemon)
    return [
        diagnosis.reconsidered(ended, server, is_proven=False),
        diagnosis.unfinished(dial, ppp, daemon),
    ]


@pytest.mark.parametrize("release", RELEASES)
def test_real_logs_have_the_reasons_that_were_shown(release: str) -> None:
    for entry in ENTRIES[release]:
        found = [(each.cause.value, str(each)) for each in failures(entry)]
        assert (entry["state"], entry["reason"]) in found


def test_each_reason_of_real_logs_stands_in_the_table() -> None:
    rows = table()
    for entry in ALL:
        mine = [row for row in rows if row.state == entry["state"]]
        assert [row for row in mine if row.reason in entry["reason"]], entry["reason"]


def test_logs_name_no_place_outside_the_tests() -> None:
    for entry in ALL:
        for said in (*entry["ppp"], *entry["daemon"]):
            assert "/home/" not in said
            assert "/root/" not in said
