"""P1 under systemd: a client floods while a whole machine boots, and while the service is killed,
upgraded and stopped; nothing gets out.

A boot takes a minute and a half on an emulated processor, more on a busy machine, so boots must be
requested: ``EGRESSD_BOOTS=20 script/test tests/vm/test_boot_vm.py``.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Final

import pytest

from egressd_lab.packets import new_token
from tests.vm import boot, machine

BOOTS = int(os.environ.get("EGRESSD_BOOTS", "0"))
BOOT_S = 1800.0
SETTLE_NS: Final = 1_000_000_000
"""Nanoseconds that the clocks of both machines may differ by."""

pytestmark = [
    pytest.mark.vm,
    pytest.mark.timeout(0),
    pytest.mark.skipif(BOOTS == 0, reason="boots are asked for by EGRESSD_BOOTS=NUMBER"),
]

_LOOK = """\
while [ ! -e {shared}/network.done ]; do sleep 0.2; done
sleep 5
echo done
echo o > /proc/sysrq-trigger
"""

_LIVE: Final = """\
cd {root}
PYTHONPATH={root}/src:{root}/lab/src .venv/bin/python -m tests.vm.inside.service {shared} %s
sync
echo o > /proc/sysrq-trigger
"""


@pytest.fixture(scope="module")
def side() -> Iterator[machine.Side]:
    boot.kernel()
    with machine.side() as made:
        yield made


def test_control_without_egressd_the_flood_leaves(side: machine.Side, tmp_path: Path) -> None:
    token = new_token()
    with side.capture() as capture:
        flood = side.client(machine.UNRULED).flood(token, rate=2000)
        said = machine.Machine(tmp_path, side, _LOOK, installed=False).run(BOOT_S)
        assert flood.stop().sent > 1000
        assert "done" in said
        assert capture.flows(token, interface="wan")


@pytest.mark.parametrize("number", range(BOOTS))
def test_p1_no_packet_leaves_while_the_machine_boots(
    side: machine.Side, tmp_path: Path, number: int
) -> None:
    token = new_token()
    with side.capture() as capture:
        client = side.client(machine.UNRULED)
        floods = [
            client.flood(token, rate=2000),
            client.flood(token, kind="tcp", port=80, rate=200),
            client.flood(token, kind="icmp", rate=200),
        ]
        said = machine.Machine(tmp_path, side, _LOOK, installed=True).run(BOOT_S)
        assert sum(flood.stop().sent for flood in floods) > 1000
        assert "done" in said
        assert capture.flows(token, interface="lan", outgoing=True), "the flood reached the machine"
        assert capture.flows(token, interface="wan") == []


def test_p1_no_packet_leaves_while_the_service_is_killed_or_stopped(
    side: machine.Side, tmp_path: Path
) -> None:
    unruled, ruled = new_token(), new_token()
    with side.capture(keep=True) as capture:
        floods = [
            side.client(machine.UNRULED).flood(unruled, rate=500),
            side.client(machine.UNRULED).flood(unruled, kind="tcp", port=80, rate=50),
            side.client(machine.RULED).flood(ruled, rate=100),
        ]
        said = machine.Machine(tmp_path, side, _LIVE % machine.RULED, installed=True).run(BOOT_S)
        for flood in floods:
            flood.stop()
        assert capture.flows(unruled, interface="lan", outgoing=True)
        assert capture.flows(unruled, interface="wan") == []
        left = [p.time_ns for p in capture.packets(ruled) if p.interface == "wan"]
    steps = [line.split() for line in (tmp_path / "steps").read_text().splitlines()]
    assert steps[-1][0] == "done", said
    for (name, begin), (_, end) in pairwise(steps):
        within = [t for t in left if int(begin) + SETTLE_NS < t < int(end) - SETTLE_NS]
        if name == "stopped":
            assert within == [], "a stop did not block"
        elif int(end) - int(begin) > 3 * SETTLE_NS and name not in ("started", "unheard:KILL"):
            assert within, f"nothing left while {name}"
