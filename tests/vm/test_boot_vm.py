"""P1 at boot: a client floods while a whole machine boots under systemd, and nothing gets out.

Each boot takes minutes where the processor is emulated (seven on two busy cores), so
they are asked for: ``EGRESSD_BOOTS=20 script/test tests/vm/test_boot_vm.py``.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from egressd.lab.packets import new_token
from tests.vm import boot, machine

BOOTS = int(os.environ.get("EGRESSD_BOOTS", "0"))
BOOT_S = 1800.0

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


@pytest.fixture(scope="module")
def side() -> Iterator[machine.Side]:
    boot.kernel()
    with machine.side() as made:
        yield made


def test_control_without_egressd_the_flood_gets_out(side: machine.Side, tmp_path: Path) -> None:
    token = new_token()
    with side.capture() as capture:
        flood = side.client(machine.UNRULED).flood(token, rate=2000)
        said = machine.Machine(tmp_path, side, _LOOK, installed=False).run(BOOT_S)
        assert flood.stop().sent > 1000
        assert "done" in said
        assert capture.flows(token, interface="wan")


@pytest.mark.parametrize("number", range(BOOTS))
def test_p1_nothing_gets_out_while_the_machine_boots(
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
